package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A fixed window resets at each multiple of its length by the server's clock, whenever its slots were taken,
// and does not begin again when the clock is set back.
func TestFixedWindowResetsAtMultiplesOfItsLength(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "2/1h:fixed+9/2h", ""), day)
	refused := func(wait time.Duration) {
		t.Helper()
		want := ratelimit.Decision{Verdict: ratelimit.Category, Tier: mustParse("2/1h:fixed")[0], Used: 2, RetryAfter: wait}
		if difference := cmp.Diff(want, limiter.one(event("x", "a"))); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
	}
	s.later(t, time.Hour-time.Microsecond)
	limiter.admit(events(2, "e", "a")...)
	s.advance(t, time.Microsecond)
	limiter.admits(events(2, "f", "a")...) // four within two microseconds: the price of a fixed window
	refused(time.Hour)
	s.advance(t, -2*time.Second)
	refused(time.Hour + 2*time.Second)
}

// Each of a fixed window's events is only counted.
func TestFixedWindowIsOneBucket(t *testing.T) {
	eachLimiter(t, "1000/744h:fixed", "1000/744h:fixed", func(t *testing.T, s *store, limiter caller) {
		limiter.admit(events(40, "e", "a")...)
		limiter.admit(events(40, "f", "a")...)
		for _, key := range []string{"{n}:buckets:global", "{n}:buckets:category:a"} {
			if n := s.count(t, key); n != 1 {
				t.Errorf("%s has %d entries, expected one bucket", key, n)
			}
		}
		if got := limiter.one(costing(event("g", "a"), 921)); got.Verdict != ratelimit.Category || got.Used != 80 {
			t.Errorf("%+v, expected 80 used", got)
		}
	})
}

// A wider bucket of another replica can end after the fixed window does: its slots may still count in the
// next one.
func TestFixedWindowBesideWiderBuckets(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprint("a wider bucket: ", beside), func(t *testing.T) {
			s := newEmbedded(t, redistest.RunEmbedded(t))
			fixed := s.limiter(t, kit.Rules("9/10m:fixed", "2/10m:fixed", ""), day)
			admits, then := fixed, ratelimit.Admitted
			if beside {
				admits, then = s.limiter(t, kit.Rules("9/1h:30m", "9/1h:30m", ""), day), ratelimit.Category
			}
			admits.admits(events(2, "e", "a")...)
			got := fixed.one(event("f", "a"))
			usages := fixed.peek("a")
			if got.RetryAfter > time.Minute || got.AtLeast != beside || usages[1].AtLeast != beside {
				t.Errorf("%+v, %+v; expected less than a minute, as a lower bound: %t", got, usages[1], beside)
			}
			s.advance(t, got.RetryAfter)
			fixed.want(then, event("f", "a"))
		})
	}
}
