package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// reserving are rules that keep slots of the global limit.
func reserving(global, category string, reserve map[string]int) ratelimit.Rules {
	rules := kit.Rules(global, category, "")
	rules.Reserve = reserve
	return rules
}

func TestFloodLeavesWhatIsReserved(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, reserving("10/30m", "20/30m", map[string]int{"payments": 3}), day)
		limiter.admits(events(7, "flood", "noise")...)
		got := limiter.one(event("flood", "noise"))
		if got.Verdict != ratelimit.Global || got.Used != 7 || got.Reserved != 3 || got.RetryAfter <= 29*time.Minute {
			t.Errorf("%+v, expected a refusal by the global limit with 7 used and 3 reserved", got)
		}
		limiter.admits(events(3, "paid", "payments")...)
		if got := limiter.one(event("paid", "payments")); got.Verdict != ratelimit.Global || got.Used != 10 || got.Reserved != 0 {
			t.Errorf("%+v, expected a refusal by the global limit with 10 used and nothing reserved for others", got)
		}
	})
}

// What the category has used of its reserve is not kept a second time.
func TestReserveIsAFloorAndNoExtra(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, reserving("10/30m", "20/30m", map[string]int{"payments": 3}), day)
		limiter.admits(events(2, "paid", "payments")...)
		limiter.admits(events(7, "flood", "noise")...)
		if got := limiter.one(event("x", "noise")); got.Verdict != ratelimit.Global || got.Used != 9 || got.Reserved != 1 {
			t.Errorf("%+v, expected 9 used and 1 reserved", got)
		}
		limiter.admits(event("paid-3", "payments"))
	})
}

// What a category has used above its reserve is not kept for others.
func TestMoreThanTheReserveKeepsNothingForOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, reserving("10/30m", "20/30m", map[string]int{"payments": 1, "alerts": 1}), day)
		limiter.admits(events(3, "paid", "payments")...)
		limiter.admits(events(5, "flood", "noise")...)
		limiter.admits(event("paid-4", "payments"))
		if got := limiter.one(event("paid-5", "payments")); got.Verdict != ratelimit.Global || got.Reserved != 1 {
			t.Errorf("%+v, expected that one slot is kept for alerts", got)
		}
	})
}

// A tier with fewer slots than are reserved keeps none, so that it does not refuse everybody.
func TestShortTierKeepsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, reserving("10/30m+1/5s", "20/30m", map[string]int{"payments": 3}), day)
		limiter.admits(event("e", "noise"))
		if got := limiter.one(event("paid", "payments")); got.Verdict != ratelimit.Global || got.Tier.String() != "1/5s" || got.Reserved != 0 {
			t.Errorf("%+v, expected a refusal by 1/5s with nothing reserved", got)
		}
		s.advance(t, 5*time.Second)
		limiter.admits(event("paid", "payments"))
	})
}

// What a category has used of its reserve depends on the window of the global limit, not on that of its own.
func TestWhatIsUsedOfAReserve(t *testing.T) {
	for name, c := range map[string]struct {
		// stored: under which limit of the category the events were counted; empty: this one
		global, category, stored string
		after                    time.Duration
		kept                     int
	}{
		"exact":                       {"4/1h", "5/24h", "", 0, 0},
		"out of the global window":    {"4/1h", "5/24h", "", 61 * time.Minute, 2},
		"kept for the global window":  {"4/1h", "5/1m", "", 40 * time.Minute, 0},
		"a fixed global window":       {"4/1h:fixed", "5/24h", "", 0, 0},
		"a fixed one that has ended":  {"4/1h:fixed", "5/24h", "", 31 * time.Minute, 2},
		"the global limit in buckets": {"4/1h:10m", "5/24h", "", 40 * time.Minute, 0},
		"it was in buckets":           {"4/1h", "5/24h", "5/24h:10m", 40 * time.Minute, 0},
		"and its bucket has left":     {"4/1h", "5/24h", "5/24h:10m", 71 * time.Minute, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEmbedded(t, redistest.RunEmbedded(t))
			s.later(t, 30*time.Minute)
			reserve := map[string]int{"payments": 2}
			before := c.category
			if c.stored != "" {
				before = c.stored
			}
			s.limiter(t, reserving(c.global, before, reserve), day).admits(events(2, "paid", "payments")...)
			s.advance(t, c.after)
			limiter := s.limiter(t, reserving(c.global, c.category, reserve), day)
			if got := limiter.one(costing(event("x", "other"), 4)); got.Verdict != ratelimit.Global || got.Reserved != c.kept {
				t.Errorf("%+v, expected a refusal with %d reserved", got, c.kept)
			}
		})
	}
}

// A reserve may be in use in one tier and not in another.
func TestEachTierKeepsWhatIsNotUsedInIt(t *testing.T) {
	for _, global := range []string{"5/10m+7/2h", "7/2h+5/10m"} {
		t.Run(global, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, reserving(global, "20/2h", map[string]int{"payments": 3}), day)
				limiter.admits(events(3, "p", "payments")...)
				s.advance(t, 11*time.Minute)
				limiter.admits(events(2, "n", "noise")...)
				if got := limiter.one(event("x", "noise")); got.Tier.Count != 5 || got.Used != 2 || got.Reserved != 3 {
					t.Errorf("%+v, expected a refusal by 5/10m with 2 used and 3 reserved", got)
				}
			})
		})
	}
}

// An event of the reserve is decided again and refused, in the middle of a batch. If it gives its old slot back,
// the reserve has one more that is not in use.
func TestReserveFollowsASecondRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		posted         bool
		used, reserved int
	}{
		"released": {false, 4, 2},
		"kept":     {true, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := reserving("6/2h", "20/2h", map[string]int{"payments": 3})
				rules.Overrides = pattern.MustTable(map[string]ratelimit.Limit{"payments": mustParse("1/10m")})
				limiter := s.limiter(t, rules, day)
				again := event("again", "payments")
				limiter.admits(again)
				if c.posted {
					limiter.posts(1, again, "", "p1")
				}
				s.advance(t, 11*time.Minute)
				limiter.admits(event("full", "payments"))
				got := limiter.admit(append([]ratelimit.Request{event("first", "noise"), again}, events(3, "n", "noise")...)...)
				if got[1].Verdict != ratelimit.Category || got[3].Verdict != ratelimit.Admitted {
					t.Errorf("%+v, expected that the second event alone is refused before the last", got)
				}
				if last := got[4]; last.Verdict != ratelimit.Global || last.Used != c.used || last.Reserved != c.reserved {
					t.Errorf("%+v, expected a refusal with %d used and %d reserved", last, c.used, c.reserved)
				}
			})
		})
	}
}

// Slots are kept in each tier that has more than are reserved, and what is known of them is about the longest
// of these.
func TestReservedTier(t *testing.T) {
	for global, want := range map[string]string{
		"100/30m": "100/30m", "1/5s+100/30m": "100/30m", "100/30m+1/5s": "100/30m", "50/10m+100/30m+20/1m": "100/30m", "100/30m+7/24h": "100/30m",
		"8/1h": "8/1h", "90/1h+80/1h:fixed": "80/1h:fixed",
	} {
		rules := reserving(global, "1/1h", map[string]int{"payments": 5, "deploys": 2})
		if got := rules.ReservedTier().String(); got != want {
			t.Errorf("%s: %s, expected %s", global, got, want)
		}
	}
	for _, rules := range []ratelimit.Rules{reserving("7/1h", "1/1h", map[string]int{"payments": 7}), reserving("7/1h", "1/1h", nil)} {
		if got := rules.ReservedTier(); got != (ratelimit.Tier{}) {
			t.Errorf("%s, expected none", got)
		}
	}
}

// What others have reserved is kept for them again once they have used it and it leaves the window: the wait
// is a lower bound although nothing is kept now.
func TestWaitBesideAReserveIsALowerBound(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, reserving("10/30m", "20/30m", map[string]int{"payments": 5}), day)
		limiter.admits(events(5, "p", "payments")...)
		limiter.admits(events(5, "n", "noise")...)
		if got := limiter.one(event("x", "noise")); got.Reserved != 0 || !got.AtLeast {
			t.Errorf("%+v, expected a lower bound with nothing kept", got)
		}
		if got := limiter.one(event("y", "payments")); got.AtLeast {
			t.Errorf("%+v, expected the exact time: nothing is reserved for others", got)
		}
	})
}

// The tier that is last to have room by now may not be the last in the end: the wait is a lower bound if it
// is one in any tier that refuses.
func TestLowerBoundOfAnyTierHolds(t *testing.T) {
	for name, rules := range map[string]ratelimit.Rules{
		"another scope": reserving("10/30m", "20/1h+6/2h", map[string]int{"payments": 5}),
		"another tier":  reserving("10/30m+12/2h", "20/1h", map[string]int{"payments": 5}),
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, rules, day)
				limiter.admits(events(5, "p", "payments")...)
				limiter.admits(events(5, "n", "noise")...)
				batch := events(2, "x", "noise")
				for i := range batch {
					batch[i].Cost = 3
				}
				for _, got := range limiter.admit(batch...) {
					if got.Tier.Window != 2*time.Hour || !got.AtLeast {
						t.Errorf("%+v, expected a lower bound by the tier of two hours", got)
					}
				}
			})
		})
	}
}
