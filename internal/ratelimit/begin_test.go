package ratelimit_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// aPost is how long a post may take in these tests.
const aPost = 10 * time.Second

// aChannel is where posts of these tests go if they name no other.
const aChannel = "C0000001"

// begin asks for permission for a post of this name, of a caller that knows the end of another one.
func (c caller) begin(e ratelimit.Request, known, name string) ratelimit.Permit {
	c.t.Helper()
	return c.ask(ratelimit.Post{Request: e, Known: known, Name: name})
}

// ask asks for permission for a post, to aChannel if it names none.
func (c caller) ask(post ratelimit.Post) ratelimit.Permit {
	c.t.Helper()
	post.Longest, post.Channel = cmp.Or(post.Longest, aPost), cmp.Or(post.Channel, aChannel)
	permit, err := c.Begin(c.t.Context(), post)
	kit.Check(c.t, err)
	return permit
}

// posted records that Slack has taken the post of this name.
func (c caller) posted(name string) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Name: name, Posted: true}, ratelimit.NoPause)
}

// answer records an answer, from aChannel if it names none, and expects what it pauses.
func (c caller) answer(answer ratelimit.Answer, want ratelimit.PauseScope) time.Duration {
	c.t.Helper()
	answer.Channel = cmp.Or(answer.Channel, aChannel)
	scope, left, err := c.Answered(c.t.Context(), answer)
	kit.Check(c.t, err)
	if scope != want {
		c.t.Errorf("%+v pauses %d, expected %d", answer, scope, want)
	}
	return left
}

// refused records that Slack has refused the post of this name by a limit, which pauses aChannel.
func (c caller) refused(name string, retryAfter time.Duration) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Name: name, RetryAfter: retryAfter}, ratelimit.PausedChannel)
}

// refusedInTwo records that Slack has refused a post to each of two channels, which pauses the workspace.
func (c caller) refusedInTwo(name string, retryAfter time.Duration) {
	c.t.Helper()
	c.refused(name, retryAfter)
	c.answer(ratelimit.Answer{Channel: "C000ELSE", Name: name + " elsewhere", RetryAfter: retryAfter}, ratelimit.PausedWorkspace)
}

// wantPermit checks the answer and the number of posts that goes with it.
func (c caller) wantPermit(status ratelimit.PermitStatus, posts int, e ratelimit.Request, known, name string) {
	c.t.Helper()
	if permit := c.begin(e, known, name); permit.Status != status || permit.Posts != posts {
		c.t.Errorf("%+v, expected status %d with %d posts", permit, status, posts)
	}
}

// A replica that knows shorter windows posts what another one has in flight.
func TestAPostShortensNoExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		e := event("e", "a")
		s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day).want(ratelimit.Admitted, e)
		s.limiter(t, kit.Rules("9/10m", "9/10m", ""), day).wantPermit(ratelimit.Granted, 1, e, "", "p")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 59*time.Minute {
			t.Errorf("what is in flight expires in %s, expected an hour", left)
		}
	})
}

func TestAPostIsNotedBeforeItIsMade(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		limiter.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
		limiter.want(ratelimit.Admitted, e) // a redelivery goes on as before
		s.charged(t, 1)
		s.advance(t, aPost)
		limiter.wantPermit(ratelimit.OutcomeUnknown, 2, e, "", "q1")
		limiter.wantPermit(ratelimit.OutcomeUnknown, 2, e, "p1", "q1")
		if permit := limiter.begin(e, "", "q1"); permit.Last != "p2" {
			t.Errorf("%+v, expected the name of the last post", permit)
		}
		limiter.wantPermit(ratelimit.Granted, 3, e, "p2", "q1")
		limiter.sent(e)
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "q1", "q2")
		limiter.want(ratelimit.Duplicate, e)
	})
}

// An answer that is lost is asked for again, by the client or by the worker. It is the same, and no other's post.
func TestALostPermitIsGivenAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.want(ratelimit.Admitted, e, f)
		for range 3 {
			limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		}
		limiter.refused("p1", time.Second)
		s.advance(t, time.Second)
		for range 3 {
			limiter.wantPermit(ratelimit.Granted, 1, f, "", "p2") // the probe does not wait for itself
		}
	})
}

// Two replicas can hold one event: its consumer was deleted, or one of them stood still for longer than AckWait.
func TestAnEventIsNotPostedWhileAnotherReplicaMayBePostingIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day), s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.want(ratelimit.Admitted, e)
		other.want(ratelimit.Admitted, e)
		one.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		permit := other.begin(e, "", "q1")
		if permit.Status != ratelimit.Leased || permit.Wait <= 0 || permit.Wait > aPost {
			t.Errorf("%+v, expected to wait at most %s", permit, aPost)
		}
		f := event("f", "a")
		other.want(ratelimit.Admitted, f)
		other.wantPermit(ratelimit.Granted, 1, f, "", "q2") // other events go on
		one.sent(e)
		other.wantPermit(ratelimit.NotInFlight, 0, e, "", "q3")
	})
}

// An event that was decided anew begins to count its posts anew. Whoever knows of more posts before that must not take
// another replica's first one for its own.
func TestPostsAreKnownByNameAndNotByNumber(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day), s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.want(ratelimit.Admitted, e)
		for i := range 3 { // Slack is unavailable
			one.wantPermit(ratelimit.Granted, i+1, e, fmt.Sprintf("p%d", i), fmt.Sprintf("p%d", i+1))
			s.advance(t, time.Minute)
			if i == 0 {
				one.wantPermit(ratelimit.OutcomeUnknown, 1, e, "", "x")
			}
		}
		s.advance(t, 30*time.Minute)
		other.want(ratelimit.Admitted, e) // anew
		other.wantPermit(ratelimit.Granted, 1, e, "", "q1")
		if permit := one.begin(e, "p3", "p4"); permit.Status != ratelimit.Leased {
			t.Errorf("%+v, expected to leave it to the other replica", permit)
		}
		s.advance(t, aPost)
		one.wantPermit(ratelimit.OutcomeUnknown, 1, e, "p3", "p4")
	})
}

func TestThePermitGoesToTheDeliveryThatWasAdmitted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p1")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.NotInFlight, 0, by("another message", e), "", "p2")
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p3")
		limiter.wantPermit(ratelimit.NotInFlight, 0, by("another message", e), "p3", "p4")
		limiter.want(ratelimit.Duplicate, by("another message", e))
	})
}

// A definitive refusal gives back the slots of an event whose post has begun, and of that delivery alone.
func TestAnEventWhosePostHasBegunCanBeRefunded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := costing(event("e", "a"), 2)
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		limiter.refundAfter(by("another message", e), "p1")
		s.charged(t, 2)
		limiter.refundAfter(e, "p1")
		s.charged(t, 0)
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "p1", "p2")
	})
}

// Another replica's post may be in Slack, whatever became of one's own.
func TestAnEventIsNotRefundedAfterAPostWhoseEndIsNotKnown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		limiter.want(ratelimit.Admitted, e)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		limiter.wantPermit(ratelimit.Granted, 2, e, "p1", "p2")
		for _, known := range []string{"", "p1"} {
			if limiter.refundAfter(e, known) {
				t.Errorf("refunded by somebody who knows only of the post %q", known)
			}
		}
		s.charged(t, 1)
		if !limiter.refundAfter(e, "p2") {
			t.Error("not refunded by who knows how the last post ended")
		}
	})
}

func TestNobodyBeginsDuringAPauseAndOneAloneAfterIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e, f := event("e", "a"), event("f", "a")
		limiter.want(ratelimit.Admitted, e, f)
		limiter.refusedInTwo("p0", 30*time.Second)
		if permit := limiter.begin(e, "", "p1"); permit.Status != ratelimit.WorkspacePaused || permit.Wait > 30*time.Second || permit.Wait < 20*time.Second {
			t.Errorf("%+v, expected to wait 30s", permit)
		}
		s.advance(t, 30*time.Second)
		limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
		if permit := limiter.begin(f, "", "p2"); permit.Status != ratelimit.WorkspacePaused || permit.Wait > time.Second {
			t.Errorf("%+v, expected to wait for the probe and to ask again soon", permit)
		}

		limiter.answer(ratelimit.Answer{Name: "p1", RetryAfter: time.Second}, ratelimit.PausedWorkspace) // the probe
		if permit := limiter.begin(f, "", "p2"); permit.Status != ratelimit.WorkspacePaused {
			t.Errorf("%+v, expected to wait", permit)
		}
		s.advance(t, time.Second)
		limiter.wantPermit(ratelimit.Granted, 1, f, "", "p2")
		s.advance(t, aPost) // the prober died
		limiter.wantPermit(ratelimit.Granted, 2, e, "p1", "p3")
		limiter.posted("p3")
		limiter.wantPermit(ratelimit.Granted, 2, f, "p2", "p4")
		limiter.wantPermit(ratelimit.Granted, 3, e, "p3", "p5")
	})
}

// A probe that went well says nothing about a pause that another replica's post has met since.
func TestAProbeLeavesANewPauseAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		limiter.want(ratelimit.Admitted, event("e", "a"))
		limiter.refused("p0", time.Second)
		s.advance(t, time.Second)
		limiter.wantPermit(ratelimit.Granted, 1, event("e", "a"), "", "p1")
		limiter.refused("late", 10*time.Minute)
		limiter.posted("p1")
		limiter.paused(s, aChannel, 10*time.Minute)
	})
}

// Nobody waits for a probe that began at a time which is yet to come: the clock was set back since.
func TestAProbeFromBeforeTheClockWasSetBackIsNotWaitedFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.refused("p0", time.Second)
		s.advance(t, 10*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.wantDigest(ratelimit.ChannelPaused, aChannel, "p2")
		s.advance(t, -5*time.Second)
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
	})
}

// An id stays known after a post of it has begun, for as long as after its admission.
func TestAnIDIsKnownForAWindowAfterItsLastPostBegan(t *testing.T) {
	for name, rules := range map[string]ratelimit.Rules{
		"two levels": kit.Rules("100/30m", "10/30m", ""), "with groups": grouped("100/30m", "10/30m", "20/30m"),
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.limiter(t, rules, day)
				e := event("e", "a")
				limiter.want(ratelimit.Admitted, e)
				s.advance(t, 15*time.Minute)
				limiter.want(ratelimit.Admitted, event("keeps the global set", "c"))
				s.advance(t, 5*time.Minute)
				limiter.wantPermit(ratelimit.Granted, 1, e, "", "p1")
				s.advance(t, 20*time.Minute)
				limiter.want(ratelimit.Admitted, event("f", "b")) // which removes what is stale
				limiter.want(ratelimit.Duplicate, by("another message", e))
				s.advance(t, 10*time.Minute)
				limiter.want(ratelimit.Admitted, by("another message", e))
			})
		})
	}
}
