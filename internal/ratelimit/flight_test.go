package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// eachForm runs a test on each kind of store with a global limit in either form, and one of ten for each category.
func eachForm(t *testing.T, test func(t *testing.T, s *store, limiter caller)) {
	t.Helper()
	for name, global := range map[string]string{"exact": "100/30m", "in buckets": "100/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) { test(t, s, s.limiter(t, kit.Rules(global, "10/30m", ""), day)) })
		})
	}
}

// A post that begins while the clock is behind leaves the event in flight for as long as its admission does.
func TestAPostThatBeginsWhileTheClockIsBehindShortensNothing(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, -2*time.Hour)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p")
		limiter.want(ratelimit.Admitted, event("other", "b"))
		limiter.wantPermit(ratelimit.Granted, 2, e, "p", "q")
		limiter.want(ratelimit.Duplicate, by("another message", e))
	})
}

// A further post that begins while the clock is behind does not let the event be forgotten before the post before it would be.
func TestAFurtherPostWhileTheClockIsBehindForgetsNothingOfTheOneBefore(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, 20*time.Minute)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p")
		s.advance(t, -time.Hour)
		lives := s.PTTL(t.Context(), "{n}:inflight").Val()
		limiter.wantPermit(ratelimit.Granted, 2, e, "p", "q")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < lives-time.Minute {
			t.Errorf("what is in flight expires in %s, expected %s as before", left, lives)
		}
		s.advance(t, time.Hour+11*time.Minute) // 31 minutes after the admission, and 11 after the first post
		limiter.want(ratelimit.Admitted, event("other", "b"))
		limiter.wantPermit(ratelimit.Granted, 3, e, "q", "r")
	})
}

// An event is in flight from its last post on, also for a replica whose limits are in another form.
func TestAReplicaOfAnotherFormKnowsWhenAPostBegan(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		exact := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		precise := s.limiter(t, kit.Rules("100/30m:1m", "10/30m", ""), day)
		e := event("e", "a")
		exact.want(ratelimit.Admitted, e)
		s.advance(t, 20*time.Minute)
		exact.wantPermit(ratelimit.Granted, 1, e, "", "p")
		precise.want(ratelimit.Admitted, event("other", "b"))
		s.advance(t, 15*time.Minute)
		precise.want(ratelimit.Admitted, event("third", "b"))
		precise.wantPermit(ratelimit.Granted, 2, e, "p", "q")
	})
}

// An event that is admitted anew, long after a post of it began, is in flight anew.
func TestAnEventThatIsAdmittedAnewIsInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p")
		for i := range 3 { // the keys stay
			s.advance(t, 10*time.Minute)
			limiter.want(ratelimit.Admitted, event(fmt.Sprint("f", i), "b"))
		}
		s.advance(t, time.Second)
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "q")
	})
}

// A refund takes from no bucket more than was put into it.
func TestARefundLeavesABucketThatHoldsLess(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "50/30m:1m", ""), day)
		e := costing(event("e", "a"), 5)
		limiter.want(ratelimit.Admitted, e)
		since := s.latestAdmission(t)
		// e in a bucket that began later, and another one's slot where e was.
		own := s.ZRange(t.Context(), "{n}:buckets:category:a", 0, -1).Val()
		s.put(t, "{n}:buckets:category:a", since+1, fmt.Sprint("0 1 ", since-1))
		s.put(t, "{n}:buckets:category:a", since+2, fmt.Sprint("1 6 ", since+2))
		s.ZRem(t.Context(), "{n}:buckets:category:a", own) // and not before: the set keeps its end
		if !limiter.refund(e) {
			t.Error("nothing was refunded")
		}
		if n := s.ZCard(t.Context(), "{n}:buckets:category:a").Val(); n != 2 {
			t.Errorf("%d buckets, expected 2:\n%s", n, s.contents(t))
		}
		limiter.want(ratelimit.Admitted, event("f", "a"))
	})
}

// An event of a group is refunded in its group, however many posts of it have begun.
func TestAPostForgetsNothingOfTheGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("100/30m", "10/30m", "1/30m"), day)
		for posts := range 4 {
			known := ""
			e := event(fmt.Sprint("e", posts), "team.job")
			limiter.want(ratelimit.Admitted, e) // the one slot of the group is free
			for i := range posts {
				name := fmt.Sprintf("p%d-%d", posts, i)
				limiter.wantPermit(ratelimit.Granted, i+1, e, known, name)
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
func TestAPostLengthensTheLifeOfWhatIsInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		s.advance(t, 20*time.Minute)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 29*time.Minute {
			t.Errorf("what is in flight expires in %s, expected 30m", left)
		}
	})
}
