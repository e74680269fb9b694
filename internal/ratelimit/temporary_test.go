package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// temporaryLimits makes temporary limits: "global", "group/x" or "category/x", and the limit.
func temporaryLimits(pairs ...string) ratelimit.Temporary {
	limits := ratelimit.Temporary{Groups: map[string]ratelimit.Limit{}, Categories: map[string]ratelimit.Limit{}}
	for i := 0; i < len(pairs); i += 2 {
		limit := mustParse(pairs[i+1])
		switch scope := pairs[i]; {
		case scope == "global":
			limits.Global = limit
		case len(scope) > 6 && scope[:6] == "group/":
			limits.Groups[scope[6:]] = limit
		default:
			limits.Categories[scope[len("category/"):]] = limit
		}
	}
	return limits
}

// Each scope takes its temporary limit, before every override, and its own again afterwards; what was taken
// counts in both.
func TestTemporaryLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("100/30m", "3/30m", "a.>=2/30m,a.b=1/30m")
		limiter := s.limiter(t, rules, day)
		limiter.admits(event("e1", "a.b"))
		limiter.want(ratelimit.Category, event("e2", "a.b"))
		limiter.SetTemporary(temporaryLimits("category/a.b", "4/30m", "group/g", "1/30m"))
		limiter.admits(events(3, "f", "a.b")...)
		got := limiter.one(event("g", "a.b"))
		if got.Verdict != ratelimit.Category || got.Tier.String() != "4/30m" || got.Used != 4 || got.Never {
			t.Errorf("%+v, expected a refusal by 4/30m with 4 used", got)
		}
		limiter.admits(event("h", "g.x"))
		limiter.want(ratelimit.Group, event("h", "g.y"))
		limiter.admits(events(2, "h", "a.c")...) // the pattern still counts for others
		limiter.want(ratelimit.Category, event("i", "a.c"))
		limiter.SetTemporary(temporaryLimits("global", "8/30m"))
		limiter.admits(event("k", "g.y")) // the 8th: the group has no limit any more
		limiter.want(ratelimit.Global, event("l", "new"))
		limiter.SetTemporary(ratelimit.Temporary{})
		limiter.admits(event("l", "new"))
		limiter.want(ratelimit.Category, event("m", "a.b"))
		if got := limiter.one(event("m", "a.b")); got.Used != 4 {
			t.Errorf("%+v, expected all 4 to count under the settings' limit", got)
		}
	})
}

// There may be room when a temporary limit ends, before its slots are free.
func TestWaitEndsWithTheTemporaryLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "9/30m", ""), day)
		limits := temporaryLimits("category/a", "1/30m", "category/b", "1/30m")
		limits.Ends = map[ratelimit.Scope]time.Time{{Category: "a"}: time.Now().Add(2 * time.Minute)}
		limiter.SetTemporary(limits)
		limiter.admits(event("a1", "a"), event("b1", "b"))
		if got := limiter.one(event("a2", "a")); !got.AtLeast || got.RetryAfter <= time.Minute || got.RetryAfter > 2*time.Minute {
			t.Errorf("%+v, expected a wait of at least two minutes", got)
		}
		if got := limiter.one(event("b2", "b")); got.AtLeast || got.RetryAfter <= 29*time.Minute {
			t.Errorf("%+v, expected a wait of half an hour", got)
		}
	})
}

// What is admitted under a short temporary window counts in the longer one of the settings afterwards.
func TestTemporaryAdmissionsCountAfterwards(t *testing.T) {
	for _, standing := range []string{"5/1h", "5/1h:1m", "5/24h:fixed", "5/1h:1m+50/24h:fixed"} {
		t.Run(standing, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				rules := kit.Rules("100/24h", standing, "")
				limiter := s.limiter(t, rules, time.Second)
				limiter.SetTemporary(temporaryLimits("category/a", "100/1s", "global", "1000/1s"))
				for i := range 8 {
					limiter.admits(event(fmt.Sprint("e", i), "a"))
					limiter.sent(event(fmt.Sprint("e", i), "a"))
					s.advance(t, 2*time.Second)
				}
				limiter.SetTemporary(ratelimit.Temporary{})
				if got := limiter.one(event("x", "a")); got.Verdict != ratelimit.Category || got.Used != 8 {
					t.Errorf("%+v, expected a refusal with all 8 counted", got)
				}
				usages := limiter.peek("a")
				if usages[0].Used != 8 {
					t.Errorf("the global limit counts %d, expected 8", usages[0].Used)
				}
			})
		})
	}
}

// A limiter that is asked while limits change takes one set of rules for a call.
func TestLimitsChangeUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server, kit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			switch i % 3 {
			case 0:
				limiter.SetTemporary(temporaryLimits("global", "500/1m", "group/a", "700/1h", "category/b", "10/10m"))
			case 1:
				limiter.SetTemporary(temporaryLimits("category/a.x", "600/1m:1s", "group/b", "30/1h:1m"))
			default:
				limiter.SetTemporary(ratelimit.Temporary{})
			}
		}
	}()
	for i := 0; ; i++ {
		batch := []ratelimit.Request{event(fmt.Sprint("e", i), "a.x"), event(fmt.Sprint("e", i), "b"), event(fmt.Sprint("e", i), "c")}
		if _, err := limiter.Admit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// While a temporary limit has a longer window, an event in flight is known for that, and remembered as long.
func TestLongTemporaryLimitExtendsInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		c := s.remembering(t, "r", rules, time.Minute)
		c.SetTemporary(temporaryLimits("global", "9/2h"))
		c.admits(event("e", "a"))
		c.pass(s, time.Hour)
		c.admits(event("e", "a"), event("f", "a")) // e for the second time
		for _, when := range []string{"before", "after"} {
			if usages, err := c.Peek(t.Context()); err != nil || usages[0].Used != 2 {
				t.Errorf("%s a loss: %+v, %v; expected 2 used", when, usages, err)
			}
			s.empty(t)
			s.putsBack(t, c)
		}
	})
}

// A shorter temporary limit does not shorten how long an event is in flight: its slots count when it ends.
func TestShortTemporaryLimitForgetsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/2h", "9/10m", ""), time.Minute)
		limiter.admits(event("e", "a"))
		limiter.SetTemporary(temporaryLimits("global", "9/1m"))
		s.advance(t, time.Hour)
		limiter.admits(event("e", "a")) // it is redelivered
		limiter.SetTemporary(ratelimit.Temporary{})
		if usages, err := limiter.Peek(t.Context()); err != nil || usages[0].Used != 1 {
			t.Errorf("%+v, %v; expected 1 used", usages, err)
		}
	})
}

// The same of a group, whose other groups keep their own limits meanwhile.
func TestTemporaryLimitOfAGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := grouped("100/30m", "50/30m", "10/30m")
		rules.GroupOverrides = map[string]ratelimit.Limit{"b": mustParse("3/30m")}
		limiter := s.limiter(t, rules, day)
		limiter.admits(events(10, "e", "a.x")...)
		limiter.SetTemporary(temporaryLimits("group/a", "2/1m"))
		s.advance(t, 3*time.Minute)
		limiter.admits(event("f", "a.x"))
		limiter.admits(events(3, "e", "b.x")...)
		limiter.want(ratelimit.Group, event("f", "b.x"))
		limiter.SetTemporary(ratelimit.Temporary{})
		if got := limiter.one(event("g", "a.x")); got.Verdict != ratelimit.Group || got.Used != 11 {
			t.Errorf("%+v, expected a refusal by the group with 11 used", got)
		}
	})
}

// A call has the rules of its own scopes alone: however many limits there are for others, Redis is sent as
// much.
func TestLimitsOfOthersCostNothing(t *testing.T) {
	limiter := newLimiter(t, redistest.Start(t), kit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	batch := []ratelimit.Request{event("e", "a.x"), event("e", "b")}
	few := limiter.ArgumentsOf(batch)
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, fmt.Sprint("category/c", i), "5/1h+3/10s")
	}
	limiter.SetTemporary(temporaryLimits(pairs...))
	if many := limiter.ArgumentsOf(batch); many != few {
		t.Errorf("%d arguments with 1,000 limits for others, %d without", many, few)
	}
}
