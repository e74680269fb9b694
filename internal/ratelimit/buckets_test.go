package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// later moves the embedded store's clock to this long after the next whole hour.
func (s *store) later(t testing.TB, after time.Duration) {
	t.Helper()
	s.advance(t, s.now.Truncate(time.Hour).Add(time.Hour+after).Sub(s.now))
}

// awaitMidMinute waits, at most 5 s, until the real clock is at least 2 s into a minute and 3 s before its
// end. Slots that a test takes on a redis-server then fall into one bucket of a minute, even if advance makes
// them a second older.
func awaitMidMinute(t testing.TB) {
	t.Helper()
	for now := time.Now(); ; now = time.Now() {
		into := now.Sub(now.Truncate(time.Minute))
		if into >= 2*time.Second && into < 57*time.Second {
			return
		}
		time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
	}
}

// A refund of the last slot removes the key of the buckets and its expiry. Later buckets expire as usual.
func TestRefundedBucketsStillExpire(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/10m:1m", "9/10m:1m", ""), time.Hour)
		e, f := event("e", "a"), event("f", "a")
		limiter.admits(e)
		limiter.refund(e)
		limiter.admits(e, f)
		limiter.refund(e)
		for _, key := range s.Keys(t.Context(), "*").Val() {
			if left := s.PTTL(t.Context(), key).Val(); left <= 0 || left > 2*time.Hour && key != "{n}:meta" {
				t.Errorf("%s expires in %s:\n%s", key, left, s.contents(t))
			}
		}
		limiter.refund(f)
		if n := s.Exists(t.Context(), "{n}:buckets:global", "{n}:buckets:category:a").Val(); n != 0 {
			t.Errorf("%d sets of buckets are left:\n%s", n, s.contents(t))
		}
	})
}

// In each scope, the next admission removes buckets that have left every window.
func TestBucketsThatHaveLeftAreRemoved(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("99/5m:1m", "99/5m:1m", "99/5m:1m"), time.Minute)
		for i := range 10 {
			limiter.admits(event(fmt.Sprint("e", i), "a"))
			s.advance(t, time.Minute)
		}
		for _, key := range []string{"{n}:buckets:global", "{n}:buckets:group:a", "{n}:buckets:category:a"} {
			if n := s.count(t, key); n < 5 || n > 6 {
				t.Errorf("%s has %d buckets, expected those of 5 minutes\n%s", key, n, s.contents(t))
			}
		}
	})
}

// A refund leaves a group alone if the event was not charged to it.
func TestRefundLeavesAnUnchargedGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		without := s.limiter(t, kit.Rules("100/1h", "9/1h", ""), day)
		with := s.limiter(t, grouped("100/1h", "9/1h", "2/1h:10m"), day)
		e := costing(event("e", "a.x"), 2)
		with.admits(costing(event("f", "a.y"), 2)) // its bucket covers the time of e
		without.admits(e)
		with.refunds(e)
		if got := with.one(event("g", "a.y")); got.Verdict != ratelimit.Group || got.Used != 2 {
			t.Errorf("%+v, expected that the two slots of f are still taken", got)
		}
	})
}

func TestRefundAtTheEndOfABucket(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "5/10m:1m", ""), day)
	s.later(t, time.Minute-time.Microsecond)
	e := costing(event("e", "a"), 5)
	limiter.admits(e)
	limiter.refund(e)
	limiter.admits(costing(event("f", "a"), 5))
}

// Slots taken in the last microsecond of a bucket join that bucket. If two buckets had the same end, Redis
// would sort their totals as text, 12 before 9.
func TestAdmittedAtTheEndOfABucket(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("15/10m:1m", "15/10m:1m", ""), day)
	s.later(t, 0)
	limiter.admits(costing(event("e", "a"), 9))
	s.advance(t, time.Minute)
	limiter.admits(costing(event("f", "a"), 3))
	s.advance(t, s.now.Truncate(time.Minute).Add(time.Minute-time.Microsecond).Sub(s.now))
	limiter.admits(costing(event("g", "a"), 3))
	limiter.want(ratelimit.Category, event("h", "a"))
	if n := s.count(t, "{n}:buckets:category:a"); n != 2 {
		t.Errorf("%d buckets, expected 2\n%s", n, s.contents(t))
	}
}

// A wider bucket of another worker can end after the fixed window, so its slots may still count in the next
// window.
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

// A worker with shorter windows trims by them, but never shortens an expiry that another worker has set.
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
			"{n}:buckets:global": -2, "{n}:buckets:category:a": -2, // absent
		} {
			if left := s.PTTL(t.Context(), key).Val(); left > want+2*time.Millisecond || left < want-time.Minute {
				t.Errorf("%s expires in %s, expected %s", key, left, want)
			}
		}
		long.duplicates(e)
	})
}
