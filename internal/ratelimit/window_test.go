package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

func TestHundredOverallAndTenPerCategory(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
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
				switch category := all[i].Category; decision.Verdict {
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

// A batch is decided in its order, each event against what those before it have taken.
func TestBatchCountsAgainstItself(t *testing.T) {
	eachLimiter(t, "4/30m", "2/30m", func(t *testing.T, s *store, limiter caller) {
		decisions := limiter.admit(
			event("a1", "a"), event("a2", "a"), event("a3", "a"),
			event("b1", "b"), event("c1", "c"), event("b2", "b"), event("a4", "a"))
		want := []ratelimit.Verdict{
			ratelimit.Admitted, ratelimit.Admitted, ratelimit.Category,
			ratelimit.Admitted, ratelimit.Admitted, ratelimit.Global, ratelimit.Category,
		}
		sameVerdicts(t, want, decisions)
	})
}

func TestAllTiersHold(t *testing.T) {
	eachLimiter(t, "100/30m", "4/10m+2/1m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(events(2, "first", "a")...)
		if got := limiter.one(event("x", "a")); got.Verdict != ratelimit.Category || got.Tier.String() != "2/1m" || got.Used != 2 {
			t.Errorf("third within a minute: %+v", got)
		}
		s.advance(t, time.Minute)
		limiter.admits(events(2, "second", "a")...)
		s.advance(t, time.Minute)
		if got := limiter.one(event("x", "a")); got.Verdict != ratelimit.Category || got.Tier.String() != "4/10m" || got.Used != 4 {
			t.Errorf("fifth within ten minutes: %+v", got)
		}
		s.advance(t, 8*time.Minute)
		limiter.admits(events(2, "third", "a")...)
	})
}

func TestLoweredLimitCountsWhatIsThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day).admit(events(8, "before", "a")...)
		lowered := s.limiter(t, kit.Rules("100/30m", "3/30m", ""), day)
		for range 3 {
			if got := lowered.one(event("after", "a")); got.Verdict != ratelimit.Category || got.Used != 8 {
				t.Fatalf("8 of 3 slots are taken: %+v", got)
			}
		}
		s.limiter(t, kit.Rules("5/30m", "10/30m", ""), day).want(ratelimit.Global, event("elsewhere", "b"))

		raised := s.limiter(t, kit.Rules("100/30m", "9/30m", ""), day)
		raised.admits(event("ninth", "a"))
		raised.want(ratelimit.Category, event("tenth", "a"))
	})
}
