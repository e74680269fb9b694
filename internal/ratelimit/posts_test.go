package ratelimit_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// aPost is the lease of every post in these tests.
const aPost = 10 * time.Second

// aChannel is the default channel of posts in these tests.
const aChannel = "C0000001"

// begin requests a permit for a post of an event. known names the event's last post with a known result.
func (c caller) begin(e ratelimit.Request, known, name string) ratelimit.Permit {
	c.t.Helper()
	return c.ask(ratelimit.Post{Request: e, Known: known, Name: name})
}

func (c caller) ask(post ratelimit.Post) ratelimit.Permit {
	c.t.Helper()
	post.Longest, post.Channel = cmp.Or(post.Longest, aPost), cmp.Or(post.Channel, aChannel)
	permit, err := c.Begin(c.t.Context(), post)
	kit.Check(c.t, err)
	return permit
}

// posted records that Slack has accepted the post.
func (c caller) posted(name string) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Name: name, Posted: true}, ratelimit.NoPause)
}

// answer records Slack's response, in aChannel by default, and expects a pause of this scope.
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

// refused records that Slack has rate-limited the post, which pauses aChannel.
func (c caller) refused(name string, retryAfter time.Duration) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Name: name, RetryAfter: retryAfter}, ratelimit.PausedChannel)
}

// refusedInTwo records a rate limit in each of two channels, which pauses the workspace.
func (c caller) refusedInTwo(name string, retryAfter time.Duration) {
	c.t.Helper()
	c.refused(name, retryAfter)
	c.answer(ratelimit.Answer{Channel: "C000ELSE", Name: name + " elsewhere", RetryAfter: retryAfter}, ratelimit.PausedWorkspace)
}

// wantPermit expects a status and the number of posts begun.
func (c caller) wantPermit(status ratelimit.PermitStatus, posts int, e ratelimit.Request, known, name string) {
	c.t.Helper()
	if permit := c.begin(e, known, name); permit.Status != status || permit.Posts != posts {
		c.t.Errorf("%+v, expected status %d with %d posts", permit, status, posts)
	}
}

// posts expects a permit for the event's post of this number.
func (c caller) posts(number int, e ratelimit.Request, known, name string) {
	c.t.Helper()
	c.wantPermit(ratelimit.Granted, number, e, known, name)
}

// After a lost reply the client or the worker repeats the call. It gets the same permit, for the same post.
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

// TestRepeatedPermitIsRenewed: the first reply was lost, and the post begins with the second one. Lease, slots,
// pace and probe count from there.
func TestRepeatedPermitIsRenewed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		rules := kit.Rules("100/30m", "1/30m", "")
		rules.Pace = ratelimit.Tier{Count: 1, Window: aPost / 2}
		one, other := s.limiter(t, rules, day), s.limiter(t, rules, day)
		e := event("e", "a")
		one.admits(e)
		one.refused("p0", time.Second)
		s.advance(t, aPost) // the pause is over
		one.posts(1, e, "", "p1")
		s.advance(t, aPost*3/4)
		one.posts(1, e, "", "p1")
		s.advance(t, aPost/2)
		if permit := other.begin(e, "", "q1"); permit.Status != ratelimit.ChannelPaused {
			t.Errorf("%+v, expected to wait for the probe", permit)
		}
		kit.Check(t, s.Del(t.Context(), "{n}:pauses").Err())
		if permit := other.begin(event("f", "b"), "", "q1"); permit.Status != ratelimit.NotInFlight {
			t.Errorf("%+v of an event that is not in flight", permit)
		}
		if permit := other.begin(e, "", "q1"); permit.Status != ratelimit.Leased {
			t.Errorf("%+v, expected to wait for the lease", permit)
		}
		digest := ratelimit.Post{Channel: aChannel, Name: "digest", Longest: aPost}
		if permit := other.ask(digest); permit.Status != ratelimit.Paced {
			t.Errorf("%+v, expected to wait for the pace", permit)
		}
		s.advance(t, 30*time.Minute-aPost) // the slot counts from the second call
		other.want(ratelimit.Category, event("g", "a"))
	})
}

// TestPermitIsNotRenewedAfterItsLease: another worker has waited out the lease and knows the name of the post by
// now. The worker that repeats its call has to take another name, so only one of them posts.
func TestPermitIsNotRenewedAfterItsLease(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day), s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
		e := event("e", "a")
		one.admits(e)
		other.admits(e)
		one.posts(1, e, "", "p1")
		s.advance(t, aPost+time.Second)
		other.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "q1")
		if permit := one.begin(e, "", "p1"); permit.Status != ratelimit.LastPostUnknown || permit.Last != "p1" {
			t.Errorf("%+v, expected that p1 is not permitted again", permit)
		}
		one.posts(2, e, "p1", "p2")
		if permit := other.begin(e, "p1", "q1"); permit.Status != ratelimit.Leased {
			t.Errorf("%+v beside p2, expected to wait for its lease", permit)
		}
	})
}

// TestRepeatedPermitNeedsSlots: between the two calls the slot has left its window and is another event's.
func TestRepeatedPermitNeedsSlots(t *testing.T) {
	eachLimiter(t, "100/30m", "1/2s", func(t *testing.T, s *store, limiter caller) {
		e := event("e", "a")
		limiter.admits(e)
		limiter.posts(1, e, "", "p1")
		s.advance(t, 2*time.Second)
		limiter.admits(event("f", "a"))
		limiter.wantPermit(ratelimit.NotInFlight, 0, e, "", "p1")
	})
}

// Two workers can hold one event, if its consumer was deleted or one of them was frozen for longer than
// AckWait.
func TestEventIsLeasedToOneWorker(t *testing.T) {
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
		other.posts(1, f, "", "q2") // the lease holds back no other event
		one.sent(e)
		other.wantPermit(ratelimit.NotInFlight, 0, e, "", "q3")
	})
}

// A lease follows the server's clock, even if the clock is behind the newest admission.
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
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "q1") // instead of a wait of an hour
	})
}

// The record of posts is kept for the dedupe window after the last post, even if nothing is admitted
// meanwhile.
func TestPostIsKnownForTheDedupeWindow(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("e", "a"))
		s.advance(t, 29*time.Minute)
		limiter.posts(1, event("e", "a"), "", "p1")
		if left := s.PTTL(t.Context(), "{n}:inflight").Val(); left < day || left > day+time.Hour {
			t.Errorf("records expire in %s, expected a day or little more", left)
		}
	})
}

// outlives advances the clock until all admissions and posts have left every window of 30 minutes.
func (s *store) outlives(t *testing.T) { s.advance(t, 31*time.Minute) }

// A refused second decision reports the event's posts and keeps their record for the next decision.
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

// failed records that the post certainly failed, as did all earlier posts of the event.
func (c caller) failed(e ratelimit.Request, name string) {
	c.t.Helper()
	c.answer(ratelimit.Answer{Request: e, Name: name, Failed: true}, ratelimit.NoPause)
}

// wantUnknown expects no permit, because the event's last post may be in Slack or in progress.
func (c caller) wantUnknown(e ratelimit.Request, known, name string) {
	c.t.Helper()
	permit := c.begin(e, known, name)
	if permit.Status != ratelimit.Leased && permit.Status != ratelimit.LastPostUnknown {
		c.t.Errorf("%+v, expected that another post may be in Slack", permit)
	}
}

// The failure of an earlier post, or of another stream message, changes no record: the last post may be in
// Slack.
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
		limiter.answer(ratelimit.Answer{Request: e, Name: "p2"}, ratelimit.NoPause) // not certainly failed
		limiter.answer(ratelimit.Answer{Name: "p2", Failed: true}, ratelimit.NoPause)
		after := s.HGetAll(t.Context(), "{n}:inflight").Val()
		if before[slot(e)] != after[slot(e)] || len(after) != 1 {
			t.Errorf("in flight: %q, expected %q", after, before)
		}
		limiter.wantUnknown(e, "p1", "q1")
	})
}

// A failure removes only the post's name from the record. Admission, group and expiry stay.
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
		limiter.admits(event("f", "team.job")) // the group's only slot is free
	})
}

// After a total loss, a failed post is restored as failed. A failure reported late does not replace a later
// post.
func TestFailureIsRestored(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.posts(1, e, "", "p1")
		c.failed(e, "p1")
		s.empty(t)
		s.putsBack(t, c)
		c.posts(2, e, "", "q1")
		c.failed(e, "p1") // reported late
		s.empty(t)
		s.putsBack(t, c)
		c.wantUnknown(e, "", "q2")
	})
}

// If the store has lost only the failure, the event may be in Slack as far as other workers know. A restored
// failure replaces neither a later post nor another worker's post of the same number.
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
			t.Errorf("%q, expected the other worker's post %q", got, later)
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
			t.Errorf("%q, expected the other worker's post %q", got, later)
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
			t.Error("refunded, although the other worker's post may be in Slack")
		}
	})
}

// forfeit reports whether Forfeit has ended the event.
func (c caller) forfeit(e ratelimit.Request, known string) bool {
	c.t.Helper()
	ended, err := c.Forfeit(c.t.Context(), e, known)
	kit.Check(c.t, err)
	return ended
}

// A forfeit without a reply may not have run. If the event is then posted or admitted again, it is in flight.
func TestUnansweredForfeitIsUndoneByAPost(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		posted, redelivered, ended := event("posted", "a"), event("redelivered", "a"), event("ended", "a")
		c.admits(posted, redelivered, ended)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, e := range []ratelimit.Request{posted, redelivered, ended} {
			if _, err := c.Forfeit(cancelled, e, ""); err == nil {
				t.Fatal("a forfeit without an answer reports no error")
			}
		}
		c.posts(1, posted, "", "first")
		c.admits(redelivered)
		s.empty(t)
		s.putsBack(t, c)
		for _, e := range []ratelimit.Request{posted, redelivered, ended} {
			if _, found, err := c.InFlight(t.Context(), e); err != nil || found != (e != ended) {
				t.Errorf("%s is in flight: %t (%v)", e.ID, found, err)
			}
		}
		if n := s.count(t, "{n}:global"); n != 3 {
			t.Errorf("%d slots, expected 3", n)
		}
	})
}

func TestForfeitedSlotIsRestored(t *testing.T) {
	withJournal(t, func(t *testing.T, s *store, c caller) {
		e := event("e", "a")
		c.admits(e)
		c.forfeit(e, "")
		s.empty(t)
		s.putsBack(t, c)
		s.takenAt(t, "{n}:global", slot(e))
		if n := s.HLen(t.Context(), "{n}:inflight").Val(); n != 0 {
			t.Errorf("%d events are in flight, expected none", n)
		}
	})
}

// eachForm runs a test on each kind of store, with the global limit in a log and in buckets, and a limit of
// ten for each category.
func eachForm(t *testing.T, test func(t *testing.T, s *store, limiter caller)) {
	t.Helper()
	for name, global := range map[string]string{"exact": "100/30m", "in buckets": "100/30m:1m"} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) { test(t, s, s.limiter(t, kit.Rules(global, "10/30m", ""), day)) })
		})
	}
}

// A refund takes nothing from a bucket with fewer slots than the event costs.
func TestRefundLeavesSmallerBuckets(t *testing.T) {
	eachLimiter(t, "100/30m", "50/30m:1m", func(t *testing.T, s *store, limiter caller) {
		e := costing(event("e", "a"), 5)
		limiter.admits(e)
		since := s.latestAdmission(t)
		// The bucket of the admission has one slot of another event. The slots of e are in a later bucket.
		own := s.ZRange(t.Context(), "{n}:buckets:category:a", 0, -1).Val()
		s.put(t, "{n}:buckets:category:a", since+1, fmt.Sprint("0 1 ", since-1))
		s.put(t, "{n}:buckets:category:a", since+2, fmt.Sprint("1 6 ", since+2))
		s.ZRem(t.Context(), "{n}:buckets:category:a", own) // last, so that the set keeps its expiry
		limiter.refunds(e)
		if n := s.count(t, "{n}:buckets:category:a"); n != 2 {
			t.Errorf("%d buckets, expected 2:\n%s", n, s.contents(t))
		}
		limiter.admits(event("f", "a"))
	})
}
