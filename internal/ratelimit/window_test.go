package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestHundredOverallAndTenPerCategory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		const categories, each = 20, 12
		var all []ratelimit.Request
		for category := range categories {
			all = append(all, events(each, fmt.Sprintf("e%d", category), fmt.Sprintf("category-%d", category))...)
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

		sent, sentOf := 0, map[string]int{}
		for len(all) > 0 {
			n := min(len(all), 1+rand.IntN(40))
			for i, decision := range limiter.admit(all[:n]...) {
				switch category := all[i].Category; decision.Outcome {
				case ratelimit.Admitted:
					sent++
					sentOf[category]++
				case ratelimit.Category:
					if sentOf[category] != 10 {
						t.Errorf("%s was refused by its own limit after %d", category, sentOf[category])
					}
				case ratelimit.Global:
					if sent != 100 {
						t.Errorf("the global limit refused after %d", sent)
					}
				default:
					t.Errorf("%+v", decision)
				}
			}
			all = all[n:]
		}
		if sent != 100 {
			t.Errorf("%d were sent, expected 100", sent)
		}
		for category, n := range sentOf {
			if n > 10 {
				t.Errorf("%s sent %d, expected at most 10", category, n)
			}
		}
	})
}

func TestCategoryLimitIsReachedWhileTheGlobalOneHasRoom(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
		limiter.want(ratelimit.Admitted, events(2, "a", "a")...)
		limiter.want(ratelimit.Category, event("a-3", "a"))
		limiter.want(ratelimit.Admitted, events(2, "b", "b")...)
	})
}

func TestGlobalLimitHoldsForACategoryThatHasRoom(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("3/30m", "2/30m", ""), day)
		limiter.want(ratelimit.Admitted, events(2, "a", "a")...)
		limiter.want(ratelimit.Admitted, event("b-1", "b"))
		limiter.want(ratelimit.Global, event("b-2", "b"), event("c-1", "c"))
	})
}

// A batch is decided in its order, each event against what those before it have taken.
func TestEventsOfOneBatchCountAgainstEachOther(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("4/30m", "2/30m", ""), day)
		decisions := limiter.admit(
			event("a1", "a"), event("a2", "a"), event("a3", "a"),
			event("b1", "b"), event("c1", "c"), event("b2", "b"), event("a4", "a"))
		want := []ratelimit.Outcome{
			ratelimit.Admitted, ratelimit.Admitted, ratelimit.Category,
			ratelimit.Admitted, ratelimit.Admitted, ratelimit.Global, ratelimit.Category,
		}
		sameOutcomes(t, want, decisions)
	})
}

// The window is (now - WINDOW, now]: an entry leaves it at the very microsecond at which it is a window old.
func TestASlotFreesAtTheMicrosecondAtWhichItIsAWindowOld(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("5/30m", "5/30m", ""), day)
	limiter.want(ratelimit.Admitted, events(5, "e", "a")...)
	s.advance(t, 30*time.Minute-time.Microsecond)
	if got := limiter.one(event("late", "a")); got.Outcome != ratelimit.Category || got.RetryAfter != time.Microsecond || got.Used != 5 {
		t.Errorf("a microsecond early: %+v, expected a refusal for one more microsecond", got)
	}
	s.advance(t, time.Microsecond)
	limiter.want(ratelimit.Admitted, event("late", "a"))
}

// On a server whose clock runs by itself: ask until the slot is free, and see from the times that the script used that
// it was given neither early nor, once asked for, late.
func TestASlotIsNeverGivenEarlyInRealTime(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		const window = 80 * time.Millisecond
		limiter := s.limiter(t, kit.Rules("2/80ms", "2/80ms", ""), day)
		limiter.admit(event("first", "a"))
		first, _ := s.clock(t)
		frees := first + window.Microseconds()
		limiter.admit(event("second", "a"))
		deadline := time.Now().Add(kit.Patience)
		for asked := 0; ; asked++ {
			decision := limiter.one(event("third", "a"))
			clock, _ := s.clock(t)
			if decision.Outcome == ratelimit.Admitted {
				if clock < frees {
					t.Errorf("admitted %d us early", frees-clock)
				}
				if asked == 0 {
					t.Log("the machine was too slow to see a refusal")
				}
				return
			}
			if clock >= frees {
				t.Fatalf("refused %d us after the slot was free: %+v", clock-frees, decision)
			}
			if wait := decision.RetryAfter.Microseconds(); wait != frees-clock {
				t.Fatalf("RetryAfter %d us, expected %d", wait, frees-clock)
			}
			if time.Now().After(deadline) {
				t.Fatal("never admitted")
			}
			s.pass(t, time.Millisecond)
		}
	})
}

// However events come, no rolling window holds more than its limit, and a slot that is free is given.
func TestNoRollingWindowEverHoldsMoreThanTheLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) { s.neverSixIn20ms(t, kit.Rules("5/20ms", "3/20ms", "")) })
}

// neverSixIn20ms asks for 400 events of three categories under rules that allow five in 20 ms, however they are counted.
func (s *store) neverSixIn20ms(t *testing.T, rules ratelimit.Rules) {
	t.Helper()
	limiter := s.limiter(t, rules, day)
	var times []int64 // of admissions, by the clock of the script
	for i := range 400 {
		decision := limiter.one(event(fmt.Sprint("e", i), fmt.Sprint("c", i%3)))
		clock, lag := s.clock(t)
		if decision.Outcome == ratelimit.Admitted {
			times = append(times, clock+lag)
		}
		if n := len(times); n > 5 && times[n-1]-times[n-6] < 20_000 {
			t.Fatalf("six admissions within %d us", times[n-1]-times[n-6])
		}
		s.pass(t, time.Duration(rand.IntN(700))*time.Microsecond)
	}
	if len(times) <= 5 {
		t.Errorf("only %d admissions: no slot was ever free again", len(times))
	}
}

func TestAllTiersHold(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "4/10m+2/1m", ""), day)
		limiter.want(ratelimit.Admitted, events(2, "first", "a")...)
		if got := limiter.one(event("x", "a")); got.Outcome != ratelimit.Category || got.Tier.String() != "2/1m" || got.Used != 2 {
			t.Errorf("third within a minute: %+v", got)
		}
		s.advance(t, time.Minute)
		limiter.want(ratelimit.Admitted, events(2, "second", "a")...)
		s.advance(t, time.Minute)
		if got := limiter.one(event("x", "a")); got.Outcome != ratelimit.Category || got.Tier.String() != "4/10m" || got.Used != 4 {
			t.Errorf("fifth within ten minutes: %+v", got)
		}
		s.advance(t, 8*time.Minute)
		limiter.want(ratelimit.Admitted, events(2, "third", "a")...)
	})
}

func TestATierOfOneIsAMinimumDistance(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m+1/5s", ""), day)
		if got, want := outcomes(limiter.admit(events(3, "e", "a")...)), []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Category, ratelimit.Category}; !cmp.Equal(got, want) {
			t.Errorf("three at once: %v", got)
		}
		for i := range 9 {
			s.advance(t, 4*time.Second)
			limiter.want(ratelimit.Category, event("early", "a"))
			s.advance(t, time.Second)
			limiter.want(ratelimit.Admitted, event(fmt.Sprint("next", i), "a"))
		}
		s.advance(t, 5*time.Second)
		if got := limiter.one(event("eleventh", "a")); got.Tier.String() != "10/30m" {
			t.Errorf("the eleventh: %+v, expected a refusal by 10/30m", got)
		}
	})
}

func TestGlobalTiersHoldOverAllCategories(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m+1/2s", "10/30m", ""), day)
		limiter.want(ratelimit.Admitted, event("a", "a"))
		if got := limiter.one(event("b", "b")); got.Outcome != ratelimit.Global || got.Tier.String() != "1/2s" {
			t.Errorf("another category at once: %+v", got)
		}
		s.advance(t, 2*time.Second)
		limiter.want(ratelimit.Admitted, event("b", "b"))
	})
}

func TestOverridesReplaceTheLimitOfAllCategories(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		r := kit.Rules("100/30m", "3/30m", "wide=5/30m,narrow=1/1h")
		limiter := s.limiter(t, r, day)
		for category, most := range map[string]int{"wide": 5, "narrow": 1, "other": 3} {
			admitted := 0
			for _, decision := range limiter.admit(events(8, category, category)...) {
				if decision.Outcome == ratelimit.Admitted {
					admitted++
				} else if want := r.LimitFor(category)[0]; decision.Tier != want {
					t.Errorf("%s was refused by %s, expected %s", category, decision.Tier, want)
				}
			}
			if admitted != most {
				t.Errorf("%s: %d admitted, expected %d", category, admitted, most)
			}
		}
		s.advance(t, 30*time.Minute+time.Millisecond)
		limiter.want(ratelimit.Admitted, event("later", "wide"), event("later too", "other"))
		limiter.want(ratelimit.Category, event("later still", "narrow"))
	})
}

func TestALoweredLimitRefusesWhatIsAboveIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day).admit(events(8, "before", "a")...)
		lowered := s.limiter(t, kit.Rules("100/30m", "3/30m", ""), day)
		for range 3 {
			if got := lowered.one(event("after", "a")); got.Outcome != ratelimit.Category || got.Used != 8 {
				t.Fatalf("8 of 3 slots are taken: %+v", got)
			}
		}
		s.limiter(t, kit.Rules("5/30m", "10/30m", ""), day).want(ratelimit.Global, event("elsewhere", "b"))

		raised := s.limiter(t, kit.Rules("100/30m", "9/30m", ""), day)
		raised.want(ratelimit.Admitted, event("ninth", "a"))
		raised.want(ratelimit.Category, event("tenth", "a"))
	})
}

// When one entry leaves while more than the limit are there, that makes no room yet.
func TestALoweredLimitIsFreeOnlyWhenEnoughSlotsHaveLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		before := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		for i := range 4 {
			before.want(ratelimit.Admitted, event(fmt.Sprint("before", i), "a"))
			s.advance(t, time.Minute)
		}
		lowered := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
		decision := lowered.one(event("after", "a"))
		clock, _ := s.clock(t)
		third := s.takenAt(t, "{n}:category:a", "a:before2")
		if want := third + (30 * time.Minute).Microseconds() - clock; decision.Used != 4 || decision.RetryAfter.Microseconds() != want {
			t.Errorf("%+v, expected 4 used and %d us until the third has left", decision, want)
		}
	})
}
