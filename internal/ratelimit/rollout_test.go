package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// At a rolling restart old and new replicas decide side by side over the same keys, each by its own rules. Each counts
// what all have admitted, so that no window ever holds more than the larger of the two limits, and with the old ones
// gone never more than the new one. That is so while their longest windows are the same: each keeps entries for its own.
func TestOldAndNewReplicasSideBySide(t *testing.T) {
	tests := map[string]struct{ old, new [2]string }{ // global and category
		"lowered":                 {[2]string{"20/10m", "6/10m"}, [2]string{"8/10m", "3/10m"}},
		"raised":                  {[2]string{"8/10m", "3/10m"}, [2]string{"20/10m", "6/10m"}},
		"one lowered, one raised": {[2]string{"20/10m", "3/10m"}, [2]string{"8/10m", "6/10m"}},
		"a shorter tier added":    {[2]string{"20/10m", "6/10m"}, [2]string{"20/10m+5/1m", "6/10m+1/30s"}},
		"a shorter tier removed":  {[2]string{"20/10m+5/1m", "6/10m+1/30s"}, [2]string{"20/10m", "6/10m"}},
	}
	categories := []string{"a", "b", "c"}
	eachStore(t, func(t *testing.T, s *store) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s.FlushAll(t.Context())
				held := []ratelimit.Rules{kit.Rules(test.old[0], test.old[1], ""), kit.Rules(test.new[0], test.new[1], "")}
				replicas := []caller{s.limiter(t, held[0], day), s.limiter(t, held[1], day)}
				var list taken
				serial := 0
				ask := func(replica int, category string) ratelimit.Decision {
					serial++
					e := event(fmt.Sprint("e", serial), category)
					decision := replicas[replica].one(e)
					clock, lag := s.clock(t)
					list = list.check(t, held[replica], clock+lag+s.aged.Microseconds(), e, decision)
					if decision.Outcome == ratelimit.Admitted && serial%7 == 0 {
						replicas[replica].sent(e)
					}
					return decision
				}
				// A window counts fully what comes after its set's first admission under it; so each set gets one, and
				// none is without admissions for so long that it expires.
				for replica := range replicas {
					for _, category := range categories {
						ask(replica, category)
					}
				}
				for range 80 {
					ask(rand.IntN(2), categories[rand.IntN(len(categories))])
					s.advance(t, time.Duration(rand.IntN(int(40*time.Second))))
				}
				// The new ones see nothing but the old ones' doing for a while, and then they are alone.
				for range 30 {
					ask(0, categories[rand.IntN(len(categories))])
					s.advance(t, time.Duration(rand.IntN(int(20*time.Second))))
				}
				for range 80 {
					ask(1, categories[rand.IntN(len(categories))])
					s.advance(t, time.Duration(rand.IntN(int(40*time.Second))))
				}
			})
		}
	})
}

// A replica with shorter windows removes what they do not have, but no key ends earlier than another replica asked for.
func TestAReplicaWithShorterWindowsShortensNoKeysLife(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		long := s.limiter(t, kit.Rules("100/2h", "10/1h", ""), 48*time.Hour)
		short := s.limiter(t, kit.Rules("100/1m", "10/30s", ""), time.Hour)
		e := event("e", "a")
		long.admit(e, event("flying", "a"))
		long.sent(e)
		f := event("f", "a")
		short.want(ratelimit.Admitted, f)
		short.sent(f)
		for key, want := range map[string]time.Duration{
			"{n}:global": 2 * time.Hour, "{n}:inflight": 2 * time.Hour, "{n}:sent": 48 * time.Hour, "{n}:category:a": time.Hour,
			"{n}:buckets:global": -2, "{n}:buckets:category:a": -2, // none
		} {
			if left := s.PTTL(t.Context(), key).Val(); left > want+2*time.Millisecond || left < want-time.Minute {
				t.Errorf("%s expires in %s, expected %s", key, left, want)
			}
		}
		long.want(ratelimit.Duplicate, e)
	})
}

// Replicas whose limits are in another form write other keys, and each counts what all have admitted.
func TestReplicasOfBothFormsCountEachOther(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, kit.Rules("100/30m", "5/10m", ""), day)
		buckets := s.limiter(t, kit.Rules("100/30m:1m", "5/10m:1m", ""), day)
		mixed := []caller{exact, buckets, exact, buckets, exact}
		for i, e := range events(5, "e", "a") {
			mixed[i].want(ratelimit.Admitted, e)
			s.advance(t, 10*time.Second)
		}
		for _, limiter := range mixed[:2] {
			got := limiter.one(event("f", "a"))
			if got.Outcome != ratelimit.Category || got.Used != 5 || !got.AtLeast || got.RetryAfter < 9*time.Minute {
				t.Errorf("%+v, expected a refusal with 5 used and a lower bound", got)
			}
			usages, err := limiter.Peek(t.Context(), "a")
			kit.Check(t, err)
			if usages[0].Used != 5 || usages[1].Used != 5 || !usages[1].AtLeast {
				t.Errorf("%+v, expected 5 used and a lower bound", usages)
			}
			limiter.want(ratelimit.Admitted, events(5, "e", "a")...) // in flight, whoever admitted them
		}
		if n := s.ZCard(t.Context(), "{n}:category:a").Val(); n != 3 {
			t.Errorf("%d slots in the log, expected 3", n)
		}
		if !buckets.refund(event("e-1", "a")) || !exact.refund(event("e-2", "a")) {
			t.Error("what the other replica has admitted is not refunded")
		}
		exact.want(ratelimit.Admitted, costing(event("g", "a"), 2))
		buckets.want(ratelimit.Category, event("h", "a"))
	})
}
