package ratelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// outlives lets an admission and the last post leave every window of 30 minutes.
func (s *store) outlives(t *testing.T) { s.advance(t, 31*time.Minute) }

func TestSecondAdmissionKeepsThePosts(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
		s.outlives(t)
		limiter.admits(e)
		if used := limiter.peek("a")[0].Used; used != 1 {
			t.Errorf("%d slots used, expected one of the second admission", used)
		}
		limiter.wantPermit(ratelimit.LastPostUnknown, 2, e, "", "q1")
		if limiter.refund(e) || limiter.refundAfter(e, "p1") {
			t.Error("refunded, although its last post may be in Slack")
		}
		limiter.posts(3, e, "p2", "q1")
		s.outlives(t)
		limiter.admits(e)
		limiter.wantPermit(ratelimit.LastPostUnknown, 3, e, "p2", "r1")
		limiter.sent(e)
		limiter.duplicates(e)
	})
}

func TestSecondAdmissionKeepsACertainFailure(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		posted, refunded := event("posted", "a"), event("refunded", "a")
		for i, e := range []ratelimit.Request{posted, refunded} {
			name := []string{"p1", "q1"}[i]
			limiter.admits(e)
			limiter.posts(1, e, "", name)
			limiter.failed(e, name)
		}
		s.outlives(t)
		limiter.admits(posted, refunded)
		limiter.posts(2, posted, "", "p2")
		limiter.refunds(refunded)
		if used := limiter.peek("a")[0].Used; used != 1 {
			t.Errorf("%d slots used, expected that of the posted event", used)
		}
	})
}

// A refusal leaves the record of posts for the next decision, and it reports them.
func TestSecondRefusalReportsThePosts(t *testing.T) {
	eachForm(t, func(t *testing.T, s *store, limiter caller) {
		unknown, failed, unposted := event("unknown", "a"), event("failed", "a"), event("unposted", "a")
		limiter.admits(unknown, failed, unposted)
		limiter.posts(1, unknown, "", "p1")
		limiter.posts(2, unknown, "p1", "p2")
		limiter.posts(1, failed, "", "q1")
		limiter.failed(failed, "q1")
		s.outlives(t)
		limiter.admits(costing(event("other", "a"), 10))
		before := ""
		for range 2 {
			before = s.contents(t)
			decisions := limiter.admit(event("new", "a"), unknown, failed, unposted)
			for i, want := range []struct {
				posts int
				last  string
			}{{}, {2, "p2"}, {1, ""}, {}} {
				got := decisions[i]
				if got.Verdict != ratelimit.Category || got.Posts != want.posts || got.LastPost != want.last {
					t.Errorf("%d: %+v, expected a refusal after %d posts, the last one %q", i, got, want.posts, want.last)
				}
			}
		}
		if after := s.contents(t); after != before {
			t.Errorf("a repeated refusal has written:\n%s\nbefore:\n%s", after, before)
		}
		s.outlives(t)
		limiter.admits(unknown)
		limiter.wantPermit(ratelimit.LastPostUnknown, 2, unknown, "", "r1")
	})
}

// Two events with one id are one, so a later message must not hide a post that may be in Slack.
func TestAnotherDeliveryKeepsThePosts(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		s.outlives(t)
		limiter.admits(by("another message", e))
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, by("another message", e), "", "q1")
		limiter.duplicates(e)
	})
}

// A second admission charges the group too, and its refund finds that.
func TestSecondAdmissionIsRefundedInItsGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, grouped("100/30m", "10/30m", "1/30m"), day)
		e := event("e", "team.job")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		limiter.failed(e, "p1")
		s.outlives(t)
		limiter.admits(e)
		limiter.posts(2, e, "", "p2")
		limiter.failed(e, "p2")
		limiter.refunds(e)
		limiter.admits(event("f", "team.job")) // the one slot of the group is free
	})
}

// Records of v0.2.0 stay readable.
func TestSecondDecisionReadsRecordsOfTheReleaseBefore(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		for id, state := range map[string]string{
			"v0.2.0": "1700000000000000:0:0:", "v0.2.0-group": "1700000000000000g:0:0:",
		} {
			e := event(id, "a")
			kit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), state+" "+e.Delivery).Err())
			limiter.admits(e)
			limiter.posts(1, e, "", "p-"+id)
		}
		e := event("v0.2.0-posted", "a")
		record := "1700000000000000g:3:1700000000000009:w-p3 " + e.Delivery
		kit.Check(t, s.HSet(t.Context(), "{n}:inflight", slot(e), record).Err())
		limiter.admits(e)
		limiter.wantPermit(ratelimit.LastPostUnknown, 3, e, "", "q1")
	})
}

// Posts are known for the dedupe window, however short the windows of the limits are: an event is redelivered
// after AckWait, or after an outage of NATS.
func TestPostsAreKnownForTheDedupeWindow(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/10s", "10/10s", ""), time.Hour)
		e, admitted := event("e", "a"), event("admitted", "a")
		limiter.admits(e)
		s.advance(t, 30*time.Minute) // Slack took nothing
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p1")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		s.advance(t, 59*time.Minute)
		limiter.admits(e)
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "q1")
		limiter.admits(admitted)
		s.advance(t, 59*time.Minute)
		if !s.HExists(t.Context(), "{n}:inflight", slot(admitted)).Val() {
			t.Error("a record is gone before the dedupe window has ended")
		}
	})
}

// A store that has lost everything gets the posts back with the second admission, or with the first one when
// no window has it any more.
func TestPostsArePutBackAfterASecondDecision(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("9/10m", "9/10m", "")
		a, b := s.remembering(t, "a", rules, day), s.remembering(t, "b", rules, day)
		again, once, failed := event("again", "x"), event("once", "x"), event("failed", "x")
		a.admits(again, once, failed)
		a.posts(1, again, "", "p1")
		a.posts(1, once, "", "p2")
		a.posts(1, failed, "", "p3")
		a.failed(failed, "p3")
		advance := func(d time.Duration) {
			s.advance(t, d)
			if s.embedded == nil {
				a.AgeJournal(d.Microseconds())
				b.AgeJournal(d.Microseconds())
			}
		}
		advance(time.Hour)
		b.admits(again, failed)
		before := s.HGetAll(t.Context(), "{n}:inflight").Val()
		delete(before, slot(once)) // the other one remembers it
		s.empty(t)
		s.putsBack(t, b)
		if difference := cmp.Diff(before, s.HGetAll(t.Context(), "{n}:inflight").Val()); difference != "" {
			t.Errorf("in flight (-before +put back):\n%s", difference)
		}
		b.wantPermit(ratelimit.LastPostUnknown, 1, again, "", "q1")
		b.posts(2, failed, "", "q2")
		s.empty(t)
		s.putsBack(t, a)
		s.putsBack(t, b)
		b.wantPermit(ratelimit.LastPostUnknown, 1, again, "", "q1")
		if n := s.count(t, "{n}:global"); n != 2 {
			t.Errorf("%d slots are put back, expected those of the second admissions", n)
		}
		b.admits(once)
		b.wantPermit(ratelimit.LastPostUnknown, 1, once, "", "q3")
		s.empty(t)
		s.putsBack(t, a)
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < 22*time.Hour {
			t.Errorf("the posts that are put back expire in %s, expected a day", left)
		}
	})
}
