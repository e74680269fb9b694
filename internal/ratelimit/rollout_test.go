package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// A replica with shorter windows removes what they do not have, but no key ends earlier than another replica
// asked for.
func TestShorterWindowsShortenNoExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		long := s.limiter(t, kit.Rules("100/2h", "10/1h", ""), 48*time.Hour)
		short := s.limiter(t, kit.Rules("100/1m", "10/30s", ""), time.Hour)
		e := event("e", "a")
		long.admit(e, event("flying", "a"))
		long.sent(e)
		f := event("f", "a")
		short.admits(f)
		short.sent(f)
		for key, want := range map[string]time.Duration{
			"{n}:global": 2 * time.Hour, "{n}:inflight": 48 * time.Hour, "{n}:sent": 48 * time.Hour, "{n}:category:a": time.Hour,
			"{n}:buckets:global": -2, "{n}:buckets:category:a": -2, // none
		} {
			if left := s.PTTL(t.Context(), key).Val(); left > want+2*time.Millisecond || left < want-time.Minute {
				t.Errorf("%s expires in %s, expected %s", key, left, want)
			}
		}
		long.duplicates(e)
	})
}

// Replicas whose limits are in another form write other keys, and each counts what all have admitted.
func TestBothEncodingsAreCounted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, kit.Rules("100/30m", "5/10m", ""), day)
		buckets := s.limiter(t, kit.Rules("100/30m:1m", "5/10m:1m", ""), day)
		mixed := []caller{exact, buckets, exact, buckets, exact}
		for i, e := range events(5, "e", "a") {
			mixed[i].admits(e)
			s.advance(t, 10*time.Second)
		}
		for _, limiter := range mixed[:2] {
			got := limiter.one(event("f", "a"))
			if got.Verdict != ratelimit.Category || got.Used != 5 || !got.AtLeast || got.RetryAfter < 9*time.Minute {
				t.Errorf("%+v, expected a refusal with 5 used and a lower bound", got)
			}
			usages := limiter.peek("a")
			if usages[0].Used != 5 || usages[1].Used != 5 || !usages[1].AtLeast {
				t.Errorf("%+v, expected 5 used and a lower bound", usages)
			}
			limiter.admits(events(5, "e", "a")...) // in flight, whoever admitted them
		}
		if n := s.count(t, "{n}:category:a"); n != 3 {
			t.Errorf("%d slots in the log, expected 3", n)
		}
		if !buckets.refund(event("e-1", "a")) || !exact.refund(event("e-2", "a")) {
			t.Error("what the other replica has admitted is not refunded")
		}
		exact.admits(costing(event("g", "a"), 2))
		buckets.want(ratelimit.Category, event("h", "a"))
	})
}
