package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// At a rolling restart old and new replicas decide side by side over the same keys, each by its own rules. Each counts
// what all have admitted, so that no window ever holds more than the larger of the two limits, and with the old ones
// gone never more than the new one.
func TestOldAndNewReplicasSideBySide(t *testing.T) {
	tests := map[string]struct{ old, new [2]string }{ // global and category
		"lowered":                        {[2]string{"20/10m", "6/10m"}, [2]string{"8/10m", "3/10m"}},
		"raised":                         {[2]string{"8/10m", "3/10m"}, [2]string{"20/10m", "6/10m"}},
		"one lowered, one raised":        {[2]string{"20/10m", "3/10m"}, [2]string{"8/10m", "6/10m"}},
		"a shorter tier added":           {[2]string{"20/10m", "6/10m"}, [2]string{"20/10m+5/1m", "6/10m+1/30s"}},
		"a shorter tier removed":         {[2]string{"20/10m+5/1m", "6/10m+1/30s"}, [2]string{"20/10m", "6/10m"}},
		"a longer tier added":            {[2]string{"6/1m", "3/1m"}, [2]string{"6/1m+30/1h", "3/1m+10/30m"}},
		"a longer tier removed":          {[2]string{"6/1m+30/1h", "3/1m+10/30m"}, [2]string{"6/1m", "3/1m"}},
		"windows made longer":            {[2]string{"10/1m", "4/30s"}, [2]string{"10/20m", "4/15m"}},
		"windows made shorter":           {[2]string{"10/20m", "4/15m"}, [2]string{"10/1m", "4/30s"}},
		"only the category's longer":     {[2]string{"500/1h", "4/1m"}, [2]string{"500/1h", "4/40m"}},
		"only the category's shorter":    {[2]string{"500/1h", "4/40m"}, [2]string{"500/1h", "4/1m"}},
		"longer in one, shorter in both": {[2]string{"9/2m", "4/20m"}, [2]string{"9/40m+4/1m", "4/30s"}},
	}
	categories := []string{"a", "b", "c"}
	eachStore(t, func(t *testing.T, s *store) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				s.FlushAll(t.Context())
				held := []ratelimit.Rules{testkit.Rules(test.old[0], test.old[1], ""), testkit.Rules(test.new[0], test.new[1], "")}
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

// The longest window that is asked for decides how long a set lives, whoever writes to it.
func TestAReplicaWithShorterWindowsShortensNoKeysLife(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		long := s.limiter(t, testkit.Rules("100/2h", "10/1h", ""), 48*time.Hour)
		short := s.limiter(t, testkit.Rules("100/1m", "10/30s", ""), time.Hour)
		e := event("e", "a")
		long.admit(e)
		long.sent(e)
		for i := range 6 {
			s.advance(t, 45*time.Second)
			f := event(fmt.Sprint("f", i), "a")
			short.want(ratelimit.Admitted, f)
			short.sent(f)
		}
		short.admit(event("flying", "a"))
		for key, want := range map[string]time.Duration{
			"{n}:global": 2 * time.Hour, "{n}:inflight": 2 * time.Hour, "{n}:sent": 48 * time.Hour, "{n}:category:a": time.Hour,
			"{n}:categories": 50*time.Hour + time.Second,
		} {
			if left := s.PTTL(t.Context(), key).Val(); left > want+2*time.Millisecond || left < want-10*time.Second {
				t.Errorf("%s expires in %s, expected %s", key, left, want)
			}
		}
		if got := long.admit(costing(event("x", "a"), 3))[0]; got.Used != 8 {
			t.Errorf("%+v, expected 8 used in the long window", got)
		}
		long.want(ratelimit.Duplicate, e)
	})
}

// After a refund a set lives no longer than its other entries need it.
func TestARefundGivesBackTheTimeToo(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("100/30m", "10/10m", ""), day)
		limiter.admit(event("e", "a"))
		before := s.contents(t)
		s.advance(t, time.Minute)
		aged := map[string]time.Duration{}
		for _, key := range []string{"{n}:global", "{n}:category:a"} {
			aged[key] = s.PExpireTime(t.Context(), key).Val()
		}
		for i := range 5 {
			f := costing(event(fmt.Sprint("f", i), "a"), 2)
			limiter.want(ratelimit.Admitted, f)
			if !limiter.refund(f) {
				t.Fatal("nothing was refunded")
			}
		}
		for key, want := range aged {
			if got := s.PExpireTime(t.Context(), key).Val(); got != want {
				t.Errorf("%s expires at %s, expected %s as before:\n%s", key, got, want, before)
			}
		}
	})
}
