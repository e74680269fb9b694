package ratelimit_test

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// failed records that the post of this name certainly failed, as all earlier ones of the event did.
func (c caller) failed(e ratelimit.Request, name string) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Request: e, Name: name, Failed: true}, ratelimit.NoPause)
}

// wantUnknown expects no permit, because the event's last post may be in Slack or under way.
func (c caller) wantUnknown(e ratelimit.Request, known, name string) {
	c.t.Helper()
	permit := c.begin(e, known, name)
	if permit.Status != ratelimit.Leased && permit.Status != ratelimit.LastPostUnknown {
		c.t.Errorf("%+v, expected that another post may be in Slack", permit)
	}
}

// Any worker that is given the event next posts it at once.
func TestFailedPostIsKnownToEverybody(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		for _, known := range []string{"", "p1", "an earlier post"} {
			e := event("known as "+known, "team.job")
			limiter.admits(e)
			limiter.posts(1, e, "", "p1")
			limiter.failed(e, "p1")
			limiter.posts(2, e, known, "p2")
			limiter.wantUnknown(e, "p1", "q1")
			limiter.failed(e, "p2")
			limiter.failed(e, "p2") // a lost reply
			limiter.posts(3, e, known, "q1")
		}
	})
}

func TestEventWhosePostsFailedIsRefunded(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		for _, known := range []string{"", "p1", "an earlier post"} {
			e := event("known as "+known, "a")
			limiter.admits(e)
			limiter.posts(1, e, "", "p1")
			limiter.failed(e, "p1")
			if !limiter.refundAfter(e, known) {
				t.Errorf("not refunded by who knows the post %q", known)
			}
		}
		if used := limiter.peek()[0].Used; used != 0 {
			t.Errorf("%d slots are taken, expected none", used)
		}
	})
}

// Slack's 429 shows as much as any other failure.
func TestLimitedPostHasFailed(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		answer := ratelimit.Answer{Request: e, Name: "p1", RetryAfter: time.Second, Failed: true}
		limiter.answer(answer, ratelimit.PausedChannel)
		s.advance(t, time.Second)
		limiter.posts(2, e, "", "q1")
	})
}

// A failure says nothing of a later post, which may be in Slack, nor of another message's event.
func TestFailureOfAnotherPostChangesNoRecord(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.failed(e, "p1") // not in flight
		if s.HExists(t.Context(), "{n}:inflight", slot(e)).Val() {
			t.Fatal("a failure puts an event in flight")
		}
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
		before := s.HGetAll(t.Context(), "{n}:inflight").Val()
		limiter.failed(e, "p1")
		limiter.failed(e, "p")
		limiter.failed(by("another message", e), "p2")
		limiter.answer(ratelimit.Answer{Request: e, Name: "p2"}, ratelimit.NoPause) // perhaps it has not
		limiter.answer(ratelimit.Answer{Name: "p2", Failed: true}, ratelimit.NoPause)
		after := s.HGetAll(t.Context(), "{n}:inflight").Val()
		if before[slot(e)] != after[slot(e)] || len(after) != 1 {
			t.Errorf("in flight: %q, expected %q", after, before)
		}
		limiter.wantUnknown(e, "p1", "q1")
	})
}

// A record with a failure is one like others: it keeps its admission, its group and its time.
func TestFailureKeepsTheRestOfTheRecord(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("100/30m", "10/30m", "1/30m"), day)
		e := event("e", "team.job")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		was, _, err := limiter.InFlight(t.Context(), e)
		kit.Check(t, err)
		ends := s.PExpireTime(t.Context(), "{n}:inflight").Val()
		limiter.failed(e, "p1")
		is, found, err := limiter.InFlight(t.Context(), e)
		was.LastName = ""
		if err != nil || !found || is != was || s.PExpireTime(t.Context(), "{n}:inflight").Val() != ends {
			t.Errorf("%+v, %t, %v; expected %+v, for as long as before", is, found, err, was)
		}
		if !limiter.refund(e) {
			t.Error("not refunded")
		}
		limiter.admits(event("f", "team.job")) // the one slot of the group is free
	})
}

// v0.2.0 records no failures. Its last post stays unknown to workers of either release.
func TestRecordOfAnEarlierReleaseStaysUnknown(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.answer(ratelimit.Answer{Name: "p1"}, ratelimit.NoPause)
		s.advance(t, aPost)
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "q1")
		if limiter.refund(e) {
			t.Error("refunded, although it may be in Slack")
		}
	})
}

// A store that has lost everything gets the failure back with the rest.
func TestFailureIsPutBack(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.posts(1, e, "", "p1")
		c.failed(e, "p1")
		s.empty(t)
		s.putsBack(t, c)
		c.posts(2, e, "", "q1")
		c.failed(e, "p1") // a call that came late
		s.empty(t)
		s.putsBack(t, c)
		c.wantUnknown(e, "", "q2")
	})
}

// A store may lose the failure alone: then the event may be in Slack, as far as others know. Nor does a
// failure come back in place of a later post, or of another replica's with the same number.
func TestLostFailureIsUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		e := event("e", "x")
		restores := func(record string) {
			t.Helper()
			kit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), record).Err())
		}
		recorded := func() string { return s.HGet(t.Context(), "{n}:inflight", slot(e)).Val() }
		a.admits(e)
		admitted := recorded()
		a.posts(1, e, "", "p1")
		begun := recorded()

		restores(admitted)
		b.admits(e)
		b.posts(1, e, "", "q1")
		later := recorded()
		s.putsBack(t, a)
		if got := recorded(); got != later {
			t.Errorf("%q, expected the other replica's post %q", got, later)
		}

		restores(begun)
		a.failed(e, "p1")
		failed := recorded()

		restores(begun)
		s.putsBack(t, a)
		b.wantUnknown(e, "", "q1")

		restores(later)
		s.putsBack(t, a)
		if got := recorded(); got != later {
			t.Errorf("%q, expected the other replica's post %q", got, later)
		}

		restores(failed)
		s.putsBack(t, a)
		if got := recorded(); got != failed {
			t.Errorf("%q, expected %q, as it was", got, failed)
		}
		furtherFailed := strings.Replace(failed, ":1:", ":2:", 1)
		restores(furtherFailed)
		s.putsBack(t, b)
		if got := recorded(); got != furtherFailed {
			t.Errorf("%q, expected %q, as it was", got, furtherFailed)
		}
		restores(failed)
		s.putsBack(t, b)
		a.wantUnknown(e, "p1", "p2")
		if a.refundAfter(e, "p1") {
			t.Error("refunded, although the other replica's post may be in Slack")
		}
	})
}
