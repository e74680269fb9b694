package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
)

// aPost is how long a post may take in these tests.
const aPost = 10 * time.Second

// begin asks for leave, of a caller that knows of so many posts.
func (c caller) begin(e ratelimit.Request, known int) ratelimit.Permit {
	c.t.Helper()
	permit, err := c.Begin(c.t.Context(), e, known, aPost)
	if err != nil {
		c.t.Fatal(err)
	}
	return permit
}

// wantLeave checks the answer and the number of posts that goes with it.
func (c caller) wantLeave(leave ratelimit.Leave, posts int, e ratelimit.Request, known int) {
	c.t.Helper()
	if permit := c.begin(e, known); permit.Leave != leave || permit.Posts != posts {
		c.t.Errorf("%+v, expected leave %d with %d posts", permit, leave, posts)
	}
}

func TestAPostIsNotedBeforeItIsMade(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantLeave(ratelimit.Go, 1, e, 0)
		limiter.wantLeave(ratelimit.Go, 2, e, 1)
		limiter.want(ratelimit.Admitted, e) // a redelivery goes on as before
		s.charged(t, 1)
		s.advance(t, aPost)
		limiter.wantLeave(ratelimit.Unsure, 2, e, 0)
		limiter.wantLeave(ratelimit.Unsure, 2, e, 1)
		limiter.wantLeave(ratelimit.Go, 3, e, 2)
		limiter.sent(e)
		limiter.wantLeave(ratelimit.Unknown, 0, e, 2)
		limiter.want(ratelimit.Duplicate, e)
	})
}

// Two replicas can hold one event: its consumer was deleted, or one of them stood still for longer than AckWait.
func TestAnEventIsNotPostedWhileAnotherReplicaMayBePostingIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, rules("100/30m", "10/30m", ""), day), s.limiter(t, rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.want(ratelimit.Admitted, e)
		other.want(ratelimit.Admitted, e)
		one.wantLeave(ratelimit.Go, 1, e, 0)
		permit := other.begin(e, 0)
		if permit.Leave != ratelimit.Elsewhere || permit.Wait <= 0 || permit.Wait > aPost {
			t.Errorf("%+v, expected to wait at most %s", permit, aPost)
		}
		f := event("f", "a")
		other.want(ratelimit.Admitted, f)
		other.wantLeave(ratelimit.Go, 1, f, 0) // other events go on
		one.sent(e)
		other.wantLeave(ratelimit.Unknown, 0, e, 0)
	})
}

func TestLeaveIsGivenToTheDeliveryThatWasAdmitted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.wantLeave(ratelimit.Unknown, 0, e, 0)
		limiter.want(ratelimit.Admitted, e)
		limiter.wantLeave(ratelimit.Unknown, 0, by("another message", e), 0)
		limiter.wantLeave(ratelimit.Go, 1, e, 0)
		limiter.wantLeave(ratelimit.Unknown, 0, by("another message", e), 0)
		limiter.want(ratelimit.Duplicate, by("another message", e))
	})
}

// A definitive refusal gives back the slots of an event whose post has begun, and of that delivery alone.
func TestAnEventWhosePostHasBegunCanBeRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, rules("100/30m", "10/30m", ""), day)
		e := costing(event("e", "a"), 2)
		limiter.want(ratelimit.Admitted, e)
		limiter.wantLeave(ratelimit.Go, 1, e, 0)
		limiter.refund(by("another message", e))
		s.charged(t, 2)
		limiter.refund(e)
		s.charged(t, 0)
		limiter.wantLeave(ratelimit.Unknown, 0, e, 1)
	})
}

func TestNobodyBeginsDuringAPauseAndOneAloneAfterIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter, pause := s.limiter(t, rules("100/30m", "10/30m", ""), day), s.pause(t)
		e, f := event("e", "a"), event("f", "a")
		limiter.want(ratelimit.Admitted, e, f)
		pause.extend(30 * time.Second)
		if permit := limiter.begin(e, 0); permit.Leave != ratelimit.Paused || permit.Wait > 30*time.Second || permit.Wait < 20*time.Second {
			t.Errorf("%+v, expected to wait 30s", permit)
		}
		s.advance(t, 30*time.Second)
		limiter.wantLeave(ratelimit.Probe, 1, e, 0)
		if permit := limiter.begin(f, 0); permit.Leave != ratelimit.Paused || permit.Wait > aPost {
			t.Errorf("%+v, expected to wait for the probe", permit)
		}

		pause.extend(time.Second) // the probe was refused
		limiter.begin(f, 0)
		s.advance(t, time.Second)
		limiter.wantLeave(ratelimit.Probe, 1, f, 0)
		s.advance(t, aPost) // the prober died
		limiter.wantLeave(ratelimit.Probe, 2, e, 1)
		pause.lift()
		limiter.wantLeave(ratelimit.Go, 2, f, 1)
		limiter.wantLeave(ratelimit.Go, 3, e, 2)
	})
}

// A probe that went well says nothing about a pause that another replica's post has met since.
func TestLiftingLeavesANewPauseAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		pause := s.pause(t)
		pause.extend(10 * time.Minute)
		pause.lift()
		pause.expect(s, 10*time.Minute)
	})
}
