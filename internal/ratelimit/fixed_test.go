package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A fixed window begins anew at each multiple of its length of the server's clock, whenever its slots were taken.
func TestAFixedWindowBeginsAtAMultipleOfItsLength(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "2/1h:fixed", ""), day)
	s.later(t, 59*time.Minute)
	limiter.admits(events(2, "e", "a")...)
	got := limiter.one(event("e-3", "a"))
	if got.Outcome != ratelimit.Category || got.Tier.String() != "2/1h:fixed" || got.Used != 2 || got.RetryAfter != time.Minute {
		t.Errorf("%+v, expected a refusal by 2/1h:fixed for one more minute", got)
	}
	s.advance(t, time.Minute-time.Microsecond)
	limiter.want(ratelimit.Category, event("e-3", "a"))
	s.advance(t, time.Microsecond)
	limiter.admits(events(2, "f", "a")...) // four within two minutes: the price of a fixed window
	if got := limiter.one(event("f-3", "a")); got.RetryAfter != time.Hour {
		t.Errorf("%+v, expected to wait for the next hour", got)
	}
}

// Each of a fixed window's events is only counted.
func TestAFixedWindowIsOneBucket(t *testing.T) {
	eachLimiter(t, "1000/744h:fixed", "1000/744h:fixed", func(t *testing.T, s *store, limiter caller) {
		limiter.admit(events(40, "e", "a")...)
		limiter.admit(events(40, "f", "a")...)
		for _, key := range []string{"{n}:buckets:global", "{n}:buckets:category:a"} {
			if n := s.count(t, key); n != 1 {
				t.Errorf("%s has %d entries, expected one bucket", key, n)
			}
		}
		if got := limiter.one(costing(event("g", "a"), 921)); got.Outcome != ratelimit.Category || got.Used != 80 {
			t.Errorf("%+v, expected 80 used", got)
		}
	})
}
