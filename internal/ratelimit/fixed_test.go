package ratelimit_test

import (
	"fmt"
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
	limiter.want(ratelimit.Admitted, events(2, "e", "a")...)
	got := limiter.one(event("e-3", "a"))
	if got.Outcome != ratelimit.Category || got.Tier.String() != "2/1h:fixed" || got.Used != 2 || got.RetryAfter != time.Minute {
		t.Errorf("%+v, expected a refusal by 2/1h:fixed for one more minute", got)
	}
	s.advance(t, time.Minute-time.Microsecond)
	limiter.want(ratelimit.Category, event("e-3", "a"))
	s.advance(t, time.Microsecond)
	limiter.want(ratelimit.Admitted, events(2, "f", "a")...) // four within two minutes: the price of a fixed window
	if got := limiter.one(event("f-3", "a")); got.RetryAfter != time.Hour {
		t.Errorf("%+v, expected to wait for the next hour", got)
	}
}

func TestADayIsFromMidnightToMidnightUTC(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("1/24h:fixed", "5/30m", ""), day)
	limiter.want(ratelimit.Admitted, event("e", "a"))
	midnight := s.now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if got := limiter.one(event("f", "a")); got.Outcome != ratelimit.Global || got.RetryAfter != midnight.Sub(s.now) {
		t.Errorf("%+v, expected a refusal until midnight, in %s", got, midnight.Sub(s.now))
	}
	s.advance(t, midnight.Sub(s.now))
	limiter.want(ratelimit.Admitted, event("f", "a"))
}

func TestAFixedTierAmongExactOnes(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "3/1h:fixed+2/10m", ""), day)
	s.later(t, 45*time.Minute)
	limiter.want(ratelimit.Admitted, events(2, "e", "a")...)
	if got := limiter.one(event("x", "a")); got.Tier.String() != "2/10m" || got.RetryAfter != 10*time.Minute {
		t.Errorf("%+v, expected a refusal by 2/10m", got)
	}
	s.advance(t, 10*time.Minute) // 55 minutes past
	limiter.want(ratelimit.Admitted, event("e-3", "a"))
	if got := limiter.one(event("x", "a")); got.Tier.String() != "3/1h:fixed" || got.Used != 3 || got.RetryAfter != 5*time.Minute {
		t.Errorf("%+v, expected a refusal by 3/1h:fixed", got)
	}
	s.advance(t, 5*time.Minute)
	limiter.want(ratelimit.Admitted, event("e-4", "a"))
	if got := limiter.one(event("x", "a")); got.Tier.String() != "2/10m" || got.Used != 2 || got.RetryAfter != 5*time.Minute {
		t.Errorf("%+v, expected a refusal by 2/10m, which rolls on", got)
	}
	if n := s.ZCard(t.Context(), "{n}:category:a").Val(); n != 4 {
		t.Errorf("%d slots in the exact set, expected each of the four:\n%s", n, s.contents(t))
	}
}

// Each of a fixed window's events is only counted.
func TestAFixedWindowIsOneBucket(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1000/744h:fixed", "1000/744h:fixed", ""), day)
		limiter.admit(events(40, "e", "a")...)
		limiter.admit(events(40, "f", "a")...)
		for _, key := range []string{"{n}:buckets:global", "{n}:buckets:category:a"} {
			if n := s.ZCard(t.Context(), key).Val(); n != 1 {
				t.Errorf("%s has %d entries, expected one bucket", key, n)
			}
		}
		if got := limiter.one(costing(event("g", "a"), 921)); got.Outcome != ratelimit.Category || got.Used != 80 {
			t.Errorf("%+v, expected 80 used", got)
		}
	})
}

// After the clock was set back over a boundary, the window that has begun goes on.
func TestAFixedWindowStaysBegunWhenTheClockIsSetBack(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "2/1h:fixed", ""), day)
	s.later(t, time.Second)
	limiter.want(ratelimit.Admitted, events(2, "e", "a")...)
	s.advance(t, -2*time.Second)
	if got := limiter.one(event("x", "a")); got.Outcome != ratelimit.Category || got.Used != 2 || got.RetryAfter != time.Hour+time.Second {
		t.Errorf("%+v, expected 2 used, until the next hour", got)
	}
}

// A slot that was taken in the very microsecond in which a fixed window began is in it, also where each event is kept.
func TestAFixedWindowHasItsFirstMicrosecond(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "2/1h:fixed+5/10m", ""), day)
	s.later(t, 0) // on the hour
	limiter.want(ratelimit.Admitted, events(2, "e", "a")...)
	s.advance(t, time.Minute)
	got := limiter.one(event("x", "a"))
	if got.Outcome != ratelimit.Category || got.Tier.String() != "2/1h:fixed" || got.Used != 2 || got.RetryAfter != 59*time.Minute {
		t.Errorf("%+v, expected a refusal by 2/1h:fixed with 2 used, until the next hour", got)
	}
}

// A wider bucket of another replica can end after the fixed window does: its slots may still count in the next one.
func TestTheEndOfAFixedWindowIsALowerBoundBesideWiderBuckets(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprint("a wider bucket: ", beside), func(t *testing.T) {
			s := newEmbedded(t, redistest.RunEmbedded(t))
			fixed := s.limiter(t, kit.Rules("9/10m:fixed", "2/10m:fixed", ""), day)
			admits, then := fixed, ratelimit.Admitted
			if beside {
				admits, then = s.limiter(t, kit.Rules("9/1h:30m", "9/1h:30m", ""), day), ratelimit.Category
			}
			admits.want(ratelimit.Admitted, events(2, "e", "a")...)
			got := fixed.one(event("f", "a"))
			usages, err := fixed.Peek(t.Context(), "a")
			kit.Check(t, err)
			if got.RetryAfter > time.Minute || got.AtLeast != beside || usages[1].AtLeast != beside {
				t.Errorf("%+v, %+v; expected less than a minute, as a lower bound: %t", got, usages[1], beside)
			}
			s.advance(t, got.RetryAfter)
			fixed.want(then, event("f", "a"))
		})
	}
}
