package ratelimit_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// paced returns a limiter with a pace, or without one if pace is "off". Its limits are never reached.
func (s *store) paced(t testing.TB, pace string) caller {
	t.Helper()
	rules := kit.Rules("100000/30m", "100000/30m", "")
	if pace != "off" {
		rules.Pace = mustParse(pace)[0]
	}
	return s.limiter(t, rules, day)
}

// wantPaced expects a wait for the pace. On a redis-server, where the clock runs, up to half of it
// may have passed.
func (c caller) wantPaced(s *store, want time.Duration, post ratelimit.Post) {
	c.t.Helper()
	permit := c.ask(post)
	if permit.Status != ratelimit.Paced || permit.Wait > want || s.embedded != nil && permit.Wait != want || permit.Wait < want/2 {
		c.t.Errorf("%s: %+v, expected to wait %s for the pace", post.Name, permit, want)
	}
}

// waitingPost returns a post that began to wait this long before a fixed time. Scripts only compare the
// starts of waits with each other.
func waitingPost(worker, name string, waited time.Duration) ratelimit.Post {
	since := time.Date(2026, 11, 20, 4, 0, 0, 0, time.UTC).Add(-waited)
	return ratelimit.Post{Worker: worker, Name: name, Since: since}
}

func (c caller) wantGranted(post ratelimit.Post) {
	c.t.Helper()
	if permit := c.ask(post); permit.Status != ratelimit.Granted {
		c.t.Errorf("%s: %+v, expected a permit", post.Name, permit)
	}
}

// Each worker has one place in the queue, for its oldest post. A pace of several slots leaves one to each
// older place.
func TestEachWorkerHasOnePlace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "3/1m")
		for _, name := range []string{"p1", "p2", "p3"} {
			limiter.postsTo(aChannel, name)
			limiter.posted(name)
		}
		for i := range 3 {
			limiter.ask(waitingPost("one", fmt.Sprint("o", i), time.Hour-time.Duration(i)*time.Second))
		}
		limiter.ask(waitingPost("another", "a1", time.Hour-30*time.Minute))
		s.advance(t, time.Minute)
		newer := waitingPost("other", "n1", time.Minute)
		limiter.wantGranted(newer) // of three slots, two are left to the older posts
		limiter.wantPaced(s, time.Second, waitingPost("other", "n2", time.Minute))
		limiter.wantGranted(waitingPost("one", "o0", time.Hour))
		limiter.wantGranted(waitingPost("another", "a1", time.Hour-30*time.Minute))
	})
}

// A dead worker delays the others by a second. Damaged entries, and entries from before the clock was set
// back, cause no delay.
func TestWorkerThatIsGoneIsNotWaitedFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		waiting := "{n}:pacewaiting:" + aChannel
		limiter.postsTo(aChannel, "p1")
		limiter.posted("p1")
		limiter.ask(waitingPost("gone", "g1", time.Hour))
		far := s.Time(t.Context()).Val().Add(20 * time.Minute).UnixMicro() // as after a set-back
		kit.Check(t, s.HSet(t.Context(), waiting, "x", "1 2", "y", fmt.Sprintf("1 %d far", far), "z", "").Err())
		newer := waitingPost("other", "n1", time.Minute)
		s.advance(t, time.Minute+100*time.Millisecond) // p1 left 100 ms ago, which does not shorten the wait
		limiter.wantPaced(s, time.Second, newer)
		if left := s.PTTL(t.Context(), waiting).Val(); left <= 0 || left > 2*time.Hour {
			t.Errorf("what waits expires in %s", left)
		}
		s.advance(t, time.Second)
		limiter.wantGranted(newer)
		if n := s.Exists(t.Context(), waiting).Val(); n != 0 {
			t.Errorf("what waits for nothing is kept:\n%s", s.contents(t))
		}
	})
}

// A slot kept for a post counts against other posts, not against the post itself, and ends with its permit.
func TestKeptSlotIsTakenOnce(t *testing.T) {
	for _, pace := range []string{"1/1m", "2/1m"} {
		t.Run(pace, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.paced(t, pace)
				first, count := ratelimit.Post{Name: "first", First: true}, mustParse(pace)[0].Count
				for i := range count {
					limiter.postsTo(aChannel, fmt.Sprint("before", i))
				}
				limiter.wantPaced(s, time.Minute, first)
				s.advance(t, time.Minute)
				limiter.wantGranted(first)
				for i := range count - 1 {
					limiter.postsTo(aChannel, fmt.Sprint("after", i))
				}
				limiter.wantPaced(s, time.Minute, ratelimit.Post{Name: "last"})
			})
		})
	}
}

func TestOnlyPermittedPostsAreRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1/1m")
		e := event("e", "a")
		limiter.admits(e)
		limiter.postsTo(aChannel, "p0")
		before := s.contents(t)
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Request: e, Name: "p1"})
		limiter.wantPermit(ratelimit.NotInFlight, 0, event("f", "a"), "", "p1")
		s.unchanged(t, before)
		s.advance(t, time.Minute)
		limiter.posts(1, e, "", "p1")
		limiter.posts(1, e, "", "p1")
		s.advance(t, 2*time.Minute)
		limiter.wantPermit(ratelimit.LastPostUnknown, 1, e, "", "p2") // the record is checked before the pace
		limiter.posts(2, e, "p1", "p2")
	})
}

func TestChannelIsPacedByItsConfiguredName(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.paced(t, "1/1m"), s.paced(t, "1/1m")
		one.postsTo("#alerts", "p1")
		other.wantPaced(s, time.Minute, ratelimit.Post{Channel: "#alerts", Name: "p2"})
		other.postsTo(aChannel, "p3")
		_, err := one.Begin(t.Context(), ratelimit.Post{Name: "p4", Longest: aPost}) // no channel: a webhook
		kit.Check(t, err)
		want := []string{"{n}:pace:#alerts", "{n}:pace:" + aChannel, "{n}:pace:webhook"}
		keys := s.Keys(t.Context(), "{n}:pace:*").Val()
		slices.Sort(keys)
		if difference := cmp.Diff(want, keys); difference != "" {
			t.Errorf("keys (-want +got):\n%s", difference)
		}
	})
}

// The key of a busy channel never expires, so each post removes the slots that no pace can count any more.
func TestStaleSlotsAreRemoved(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "1000/1h")
		pace := "{n}:pace:" + aChannel
		limiter.postsTo(aChannel, "first")
		s.advance(t, 61*time.Minute)
		limiter.postsTo(aChannel, "second")
		if n := s.count(t, pace); n != 1 {
			t.Errorf("%d slots are kept, expected that of the last hour\n%s", n, s.contents(t))
		}
		clock, _ := limiter.micros(s)
		var slots []redis.Z
		for i := range 3000 {
			slots = append(slots, zAt(clock-time.Minute.Microseconds(), fmt.Sprint("x", i)))
		}
		kit.Check(t, s.ZAdd(t.Context(), pace, slots...).Err())
		s.paced(t, "off").postsTo(aChannel, "third")
		if n := s.count(t, pace); n != 2000 {
			t.Errorf("%d slots are kept, expected 2000", n)
		}
		limiter.wantPaced(s, 59*time.Minute, ratelimit.Post{Name: "fourth"})
	})
}

// left returns the remaining pause of a channel, or of the workspace if channel is empty. Without a pause it
// returns 0.
func (c caller) left(channel string) time.Duration {
	c.t.Helper()
	pauses, err := c.Pauses(c.t.Context())
	kit.Check(c.t, err)
	for _, pause := range pauses {
		if pause.Channel == channel {
			return pause.Left
		}
	}
	return 0
}

// paused expects a remaining pause. On a redis-server, where the clock runs, up to a minute may have passed.
func (c caller) paused(s *store, channel string, want time.Duration) {
	c.t.Helper()
	got := c.left(channel)
	if got > want || s.embedded != nil && got != want || want > time.Minute && got < want-time.Minute {
		c.t.Errorf("%s of the pause of %q are left, expected %s", got, channel, want)
	}
}

func (s *store) anyLimiter(t *testing.T) caller {
	t.Helper()
	return s.limiter(t, kit.Rules("1000/30m", "1000/30m", ""), day)
}

// digest requests a permit for a post without an event.
func (c caller) digest(channel, name string) ratelimit.Permit {
	c.t.Helper()
	return c.ask(ratelimit.Post{Channel: channel, Name: name})
}

// wantDigest expects a status for a post without an event.
func (c caller) wantDigest(status ratelimit.PermitStatus, channel, name string) {
	c.t.Helper()
	if permit := c.digest(channel, name); permit.Status != status {
		c.t.Errorf("%s to %s: %+v, expected status %d", name, channel, permit, status)
	}
}

// postsTo expects a permit for a post without an event.
func (c caller) postsTo(channel, name string) {
	c.t.Helper()
	c.wantDigest(ratelimit.Granted, channel, name)
}

func TestPauseErrorsAreNoPause(t *testing.T) {
	limiter := limiterAt(t, "redis://"+kit.FreeAddr(t))
	if left, err := limiter.LongestPause(t.Context()); err == nil || left != 0 {
		t.Errorf("%s, %v; expected an error", left, err)
	}
	scope, left, err := limiter.Answered(t.Context(), ratelimit.Answer{Name: "p", RetryAfter: time.Second})
	if err == nil || scope != ratelimit.NoPause || left != 0 {
		t.Error(errors.Join(err, fmt.Errorf("%d for %s with Redis down", scope, left)))
	}
}

const busy, idle = "C0000BUSY", "C0000IDLE"

func TestPauseEndsWithAProbe(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		refuse := func(name string, wait time.Duration) {
			t.Helper()
			answer := ratelimit.Answer{Channel: busy, Name: name, RetryAfter: wait}
			limiter.answer(answer, ratelimit.PausedChannel)
		}
		refuse("b0", 10*time.Second)
		s.advance(t, 10*time.Second)
		limiter.postsTo(busy, "b1")
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b2")
		limiter.postsTo(idle, "i1")
		refuse("b1", 5*time.Second)
		refuse("b1", 5*time.Second) // repeated after a lost reply
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b3")
		s.advance(t, 5*time.Second)
		limiter.postsTo(busy, "b3") // although the lease of b1 has not ended
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b4")
		limiter.answer(ratelimit.Answer{Channel: busy, Name: "b3", Posted: true}, ratelimit.NoPause)
		limiter.postsTo(busy, "b4")
		limiter.postsTo(busy, "b5")
	})
}

func TestProbeThatNeverEndsExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.refused("p0", time.Second)
		limiter.posted("p1") // empties the hash of probes, which p2 creates again
		s.advance(t, time.Second)
		limiter.postsTo(aChannel, "p2")
		if left := s.TTL(t.Context(), "{n}:probes").Val(); left <= 0 || left > 62*time.Minute {
			t.Errorf("the probes expire in %s, expected an hour", left)
		}
	})
}

func TestSecondRefusedChannelPausesTheWorkspace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		refuse := func(channel string, want ratelimit.PauseScope) {
			t.Helper()
			limiter.answer(ratelimit.Answer{Channel: channel, Name: "to " + channel, RetryAfter: 10 * time.Second}, want)
		}
		refuse(busy, ratelimit.PausedChannel)
		refuse(busy, ratelimit.PausedChannel) // another post that was under way
		limiter.answer(ratelimit.Answer{Channel: "C000OTHER", Name: "failed"}, ratelimit.NoPause)
		refuse(idle, ratelimit.PausedWorkspace)
		limiter.wantDigest(ratelimit.WorkspacePaused, "C000OTHER", "o1")
		limiter.paused(s, "", 10*time.Second)
		refuse(busy, ratelimit.PausedWorkspace)

		s.advance(t, 10*time.Second)
		limiter.postsTo("C000OTHER", "to C000OTHER")
		limiter.wantDigest(ratelimit.WorkspacePaused, "C000THIRD", "t1")
		refuse("C000OTHER", ratelimit.PausedWorkspace) // nothing was posted yet
		s.advance(t, 10*time.Second)
		limiter.postsTo("C000THIRD", "t1")
		limiter.answer(ratelimit.Answer{Channel: "C000THIRD", Name: "t1", Posted: true}, ratelimit.NoPause)
		limiter.postsTo("C000THIRD", "t2")
		limiter.postsTo(busy, "b1")
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b2") // b1 still probes its own pause
		refuse(idle, ratelimit.PausedChannel)                   // the first since t1 was posted
	})
}

func TestPausesAreNamedAsInTheSettings(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		for _, channel := range []string{"#alerts", ""} {
			_, _, err := limiter.Answered(t.Context(), ratelimit.Answer{Channel: channel, Name: "p", RetryAfter: 12 * time.Second})
			kit.Check(t, err)
		}
		pauses, err := limiter.Pauses(t.Context())
		kit.Check(t, err)
		got := []string{}
		for _, pause := range pauses {
			got = append(got, pause.String())
		}
		want := []string{"Slack asked to wait 12 s", "#alerts: Slack asked to wait 12 s", "webhook: Slack asked to wait 12 s"}
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
	})
}

// A probe that began in the future was recorded before the clock was set back. No post waits for it.
func TestProbeOfTheFutureIsNotWaitedFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "off")
		limiter.refused("p0", time.Second)
		s.advance(t, 31*time.Second)
		limiter.postsTo(aChannel, "p1")
		s.advance(t, -20*time.Second)
		limiter.postsTo(aChannel, "p2")
	})
}
