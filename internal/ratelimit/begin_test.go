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

// posts expects a permit, for the event's post of this number.
func (c caller) posts(number int, e ratelimit.Request, known, name string) {
	c.t.Helper()
	c.wantPermit(ratelimit.Granted, number, e, known, name)
}

// A slot counts from the post, so the admission is good for one more window.
func TestPostedEventStaysInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		e := event("e", "a")
		limiter := s.limiter(t, kit.Rules("9/30m", "9/30m", ""), time.Minute)
		limiter.admits(e)
		s.advance(t, 20*time.Minute)
		limiter.posts(1, e, "", "p")
		s.advance(t, 20*time.Minute)
		limiter.admits(e) // redelivered
		if used := limiter.peek()[0].Used; used != 1 {
			t.Errorf("%d slots used, expected that of the post, 20 minutes ago", used)
		}
		inGlobal(t, s, 1)
	})
}

// A replica that knows shorter windows posts what another one has in flight.
func TestPostShortensNoExpiry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		e := event("e", "a")
		s.limiter(t, kit.Rules("9/1h", "9/1h", ""), day).admits(e)
		s.limiter(t, kit.Rules("9/10m", "9/10m", ""), time.Minute).posts(1, e, "", "p")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 23*time.Hour {
			t.Errorf("what is in flight expires in %s, expected a day", left)
		}
	})
}

func TestPostIsNotedBeforeItIsMade(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
		limiter.admits(e) // a redelivery goes on as before
		s.charged(t, 1)
		s.advance(t, aPost)
		limiter.wantPermit(ratelimit.LastPostUnknown, 2, e, "", "q1")
		limiter.wantPermit(ratelimit.LastPostUnknown, 2, e, "p1", "q1")
		if permit := limiter.begin(e, "", "q1"); permit.Last != "p2" {
			t.Errorf("%+v, expected the name of the last post", permit)
		}
		limiter.posts(3, e, "p2", "q1")
		limiter.sent(e)
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "q1", "q2")
		limiter.duplicates(e)
	})
}

// An answer that is lost is asked for again, by the client or by the worker. It is the same, and no other's
// post.
func TestLostPermitIsGivenAgain(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e, f := event("e", "a"), event("f", "a")
		limiter.admits(e, f)
		for range 3 {
			limiter.posts(1, e, "", "p1")
		}
		limiter.refused("p1", time.Second)
		s.advance(t, time.Second)
		for range 3 {
			limiter.posts(1, f, "", "p2") // the probe does not wait for itself
		}
	})
}

// Two replicas can hold one event: its consumer was deleted, or one of them stood still for longer than
// AckWait.
func TestEventIsLeasedToOneReplica(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day), s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.admits(e)
		other.admits(e)
		one.posts(1, e, "", "p1")
		permit := other.begin(e, "", "q1")
		if permit.Status != ratelimit.Leased || permit.Wait <= 0 || permit.Wait > aPost {
			t.Errorf("%+v, expected to wait at most %s", permit, aPost)
		}
		f := event("f", "a")
		other.admits(f)
		other.posts(1, f, "", "q2") // other events go on
		one.sent(e)
		other.wantPermit(ratelimit.NotInFlight, 0, e, "", "q3")
	})
}

// The lease goes by the server's clock, even if that is behind the newest admission.
func TestLeaseSurvivesAStepOfTheClock(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("9/30m", "9/30m", ""), day)
		e := event("e", "a")
		limiter.admits(e)
		s.advance(t, -time.Minute)
		limiter.posts(1, e, "", "p1")
		if permit := limiter.begin(e, "", "q1"); permit.Status != ratelimit.Leased || permit.Wait > aPost {
			t.Errorf("%+v, expected to wait at most %s", permit, aPost)
		}
		s.advance(t, -time.Hour)
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "q1") // not to wait for an hour
	})
}

// Posts are known by name. A replica that knows of some must not take another replica's later one for its own.
func TestPostsAreKnownByName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day), s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.admits(e)
		for i := range 3 { // Slack is unavailable
			one.posts(i+1, e, fmt.Sprintf("p%d", i), fmt.Sprintf("p%d", i+1))
			s.advance(t, time.Minute)
			if i == 0 {
				one.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "x")
			}
		}
		s.advance(t, 30*time.Minute)
		other.admits(e) // decided again
		other.wantPermit(ratelimit.LastPostUnknown, 3, e, "", "q1")
		other.posts(4, e, "p3", "q1")
		if permit := one.begin(e, "p3", "p4"); permit.Status != ratelimit.Leased {
			t.Errorf("%+v, expected to leave it to the other replica", permit)
		}
		s.advance(t, aPost)
		one.wantPermit(ratelimit.LastPostUnknown, 4, e, "p3", "p4")
	})
}

func TestPermitIsForTheAdmittedDelivery(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p1")
		limiter.admits(e)
		limiter.wantPermit(ratelimit.NotInFlight, 0, by("another message", e), "", "p2")
		limiter.posts(1, e, "", "p3")
		limiter.wantPermit(ratelimit.NotInFlight, 0, by("another message", e), "p3", "p4")
		limiter.duplicates(by("another message", e))
	})
}

// Another replica's post may be in Slack, whatever the outcome of this one's.
func TestUnknownPostIsNotRefunded(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
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
