package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/test/kit"
)

// eachForm runs a test on each kind of store with a global limit in either form, and one of ten for each
// category.
func eachForm(t *testing.T, test func(t *testing.T, s *store, limiter caller)) {
	t.Helper()
	for name, global := range map[string]string{"exact": "100/30m", "in buckets": "100/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) { test(t, s, s.limiter(t, kit.Rules(global, "10/30m", ""), day)) })
		})
	}
}

// A refund takes from no bucket more than was put into it.
func TestRefundLeavesSmallerBuckets(t *testing.T) {
	eachLimiter(t, "100/30m", "50/30m:1m", func(t *testing.T, s *store, limiter caller) {
		e := costing(event("e", "a"), 5)
		limiter.admits(e)
		since := s.latestAdmission(t)
		// e in a bucket that began later, and another one's slot where e was.
		own := s.ZRange(t.Context(), "{n}:buckets:category:a", 0, -1).Val()
		s.put(t, "{n}:buckets:category:a", since+1, fmt.Sprint("0 1 ", since-1))
		s.put(t, "{n}:buckets:category:a", since+2, fmt.Sprint("1 6 ", since+2))
		s.ZRem(t.Context(), "{n}:buckets:category:a", own) // and not before: the set keeps its end
		limiter.refunds(e)
		if n := s.count(t, "{n}:buckets:category:a"); n != 2 {
			t.Errorf("%d buckets, expected 2:\n%s", n, s.contents(t))
		}
		limiter.admits(event("f", "a"))
	})
}

// An event of a group is refunded in its group, however many posts of it have begun.
func TestPostForgetsNothingOfTheGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("100/30m", "10/30m", "1/30m"), day)
		for posts := range 4 {
			known := ""
			e := event(fmt.Sprint("e", posts), "team.job")
			limiter.admits(e) // the one slot of the group is free
			for i := range posts {
				name := fmt.Sprintf("p%d-%d", posts, i)
				limiter.posts(i+1, e, known, name)
				known = name
			}
			if posts > 0 && limiter.refundAfter(e, "another's") {
				t.Errorf("after %d posts it was refunded by who does not know the last one", posts)
			}
			if !limiter.refundAfter(e, known) {
				t.Errorf("after %d posts nothing was refunded", posts)
			}
		}
	})
}

// The key that knows an event lives for as long after a post of it began as after its admission.
func TestPostExtendsTheInFlightExpiry(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		s.advance(t, 20*time.Minute)
		limiter.posts(1, e, "", "p")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 29*time.Minute {
			t.Errorf("what is in flight expires in %s, expected 30m", left)
		}
	})
}
