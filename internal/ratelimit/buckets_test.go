package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// later sets the embedded store's clock to a time after a whole hour.
func (s *store) later(t testing.TB, after time.Duration) {
	t.Helper()
	s.advance(t, s.now.Truncate(time.Hour).Add(time.Hour+after).Sub(s.now))
}

// awaitMidMinute waits, 5 s at most, until the real clock is at least 2 s after the begin of a minute and 3 s
// before its end: what a test admits to a redis-server is then in one bucket of a minute, also where advance
// makes it a second older.
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

// A bucket ends with the last microsecond before a multiple of the precision. All that is in it counts from
// there on, so a slot frees less than the precision late, and at a known moment.
func TestBucketFreesWhenItsEndIsAWindowOld(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "5/10m:1m", ""), day)
	s.later(t, 10*time.Second)
	limiter.admits(costing(event("e", "a"), 3))
	s.advance(t, 45*time.Second)
	limiter.admits(costing(event("f", "a"), 2)) // 55 s after the hour: the same bucket
	s.advance(t, 4*time.Second)
	got := limiter.one(event("g", "a"))
	if want := 10*time.Minute + time.Second - time.Microsecond; got.Verdict != ratelimit.Category || got.Used != 5 || got.RetryAfter != want {
		t.Errorf("%+v, expected 5 used and %s to wait", got, want)
	}
	s.advance(t, got.RetryAfter-time.Microsecond)
	limiter.want(ratelimit.Category, event("g", "a"))
	s.advance(t, time.Microsecond)
	limiter.admits(costing(event("g", "a"), 5))
}

// A bucket ends at a multiple of the precision, or of what all windows are multiples of if all are fixed: so
// none spans the boundary of a fixed window.
func TestBucketsEndAtMultiplesOfTheirWidth(t *testing.T) {
	for limit, want := range map[string]string{
		"90/10m:40s+90/1h:fixed":    "00:40 01:20 02:00 02:40",
		"90/90s:fixed+90/1h:fixed":  "01:30 03:00",
		"90/90s:fixed+90/60s:fixed": "01:00 01:30 02:00 02:30", // the first has left
		"90/10m:1m+90/5m:1m":        "01:00 02:00 03:00",
	} {
		s := newEmbedded(t, redistest.RunEmbedded(t))
		limiter := s.limiter(t, kit.Rules("100/30m", limit, ""), day)
		s.later(t, 0)
		for i := range 13 { // one in ten seconds, for two minutes
			limiter.admits(event(fmt.Sprint("e", i), "a"))
			s.advance(t, 10*time.Second)
		}
		var ends []string
		for _, entry := range s.ZRangeWithScores(t.Context(), "{n}:buckets:category:a", 0, -1).Val() {
			ends = append(ends, time.UnixMicro(int64(entry.Score)+1).UTC().Format("04:05"))
		}
		if got := strings.Join(ends, " "); got != want {
			t.Errorf("%s: buckets end at %s, expected %s\n%s", limit, got, want, s.contents(t))
		}
	}
}

func TestCostIsANumberInBuckets(t *testing.T) {
	eachLimiter(t, "1000000/24h:1m", "1000000/24h:15m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(costing(event("e", "a"), 400_000), costing(event("f", "a"), 600_000))
		if got := limiter.one(event("g", "a")); got.Verdict != ratelimit.Category || got.Used != 1_000_000 {
			t.Errorf("%+v, expected 1000000 used", got)
		}
		for _, key := range []string{"{n}:buckets:global", "{n}:buckets:category:a"} {
			if n := s.count(t, key); n < 1 || n > 2 {
				t.Errorf("%s has %d entries, expected a bucket or two", key, n)
			}
		}
		limiter.refund(costing(event("e", "a"), 400_000))
		limiter.admits(costing(event("g", "a"), 400_000))
		limiter.want(ratelimit.Category, event("h", "a"))
	})
}

// When the last bucket is refunded nothing is left, and what comes later expires as ever.
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

// Buckets are removed as soon as they are out of every window, in each scope.
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

// An event that was not charged to a group has nothing to give back there.
func TestRefundLeavesAnUnchargedGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		without := s.limiter(t, kit.Rules("100/1h", "9/1h", ""), day)
		with := s.limiter(t, grouped("100/1h", "9/1h", "2/1h:10m"), day)
		e := costing(event("e", "a.x"), 2)
		with.admits(costing(event("f", "a.y"), 2)) // its bucket takes e's time, too
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

// A refund takes its cost out of the bucket that it was counted in, and out of no other.
func TestRefundLeavesOtherBuckets(t *testing.T) {
	eachLimiter(t, "100/30m", "9/10m:10s", func(t *testing.T, s *store, limiter caller) {
		first, second, third := costing(event("e1", "a"), 2), costing(event("e2", "a"), 3), costing(event("e3", "a"), 4)
		for _, e := range []ratelimit.Request{first, second, third} {
			limiter.admits(e)
			s.advance(t, 20*time.Second)
		}
		for _, e := range []ratelimit.Request{second, first} {
			if !limiter.refund(e) || limiter.refund(e) {
				t.Error("expected the first refund to give something back, and the second nothing")
			}
		}
		limiter.admits(costing(event("f", "a"), 5))
		if got := limiter.one(event("g", "a")); got.Verdict != ratelimit.Category || got.Used != 9 || got.RetryAfter < 9*time.Minute {
			t.Errorf("%+v, expected 9 used, until the third leaves", got)
		}
		s.advance(t, 9*time.Minute+55*time.Second)
		limiter.admits(costing(event("g", "a"), 4))
		limiter.want(ratelimit.Category, event("h", "a"))
	})
}

// Where limits have changed, a refund may come when the event's own bucket is long gone. It takes nothing of
// a later one.
func TestLateRefundLeavesLaterBuckets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		before := s.limiter(t, kit.Rules("100/1h", "9/10s:5s", ""), day)
		after := s.limiter(t, kit.Rules("100/1h", "2/10m:5s", ""), day)
		e := costing(event("e", "a"), 2)
		before.admits(e)
		s.advance(t, time.Minute)
		after.admits(costing(event("f", "a"), 2))
		after.refunds(e)
		if got := after.one(event("g", "a")); got.Verdict != ratelimit.Category || got.Used != 2 {
			t.Errorf("%+v, expected that the two slots of f are still taken", got)
		}
	})
}

func TestBucketsBeginAtMultiplesOfThePrecision(t *testing.T) {
	s := newEmbedded(t, redistest.RunEmbedded(t))
	limiter := s.limiter(t, kit.Rules("100/30m", "5/10m:1m", ""), day)
	s.later(t, 10*time.Second)
	limiter.admit(event("before", "a"))
	s.advance(t, 50*time.Second-time.Microsecond)
	limiter.admit(event("last", "a"), event("last too", "a")) // the last microsecond belongs to the bucket
	s.advance(t, time.Microsecond)
	limiter.admits(event("first", "a"))
	if n := s.count(t, "{n}:buckets:category:a"); n != 2 {
		t.Errorf("%d buckets, expected 2:\n%s", n, s.contents(t))
	}
}
