package ratelimit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// left returns what is left of the pause of a channel, or of the workspace if channel is empty; 0: there is
// none.
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

// paused allows for the time that has passed on a server whose clock runs by itself.
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

// digest asks for a post without an event.
func (c caller) digest(channel, name string) ratelimit.Permit {
	c.t.Helper()
	return c.ask(ratelimit.Post{Channel: channel, Name: name})
}

// wantDigest checks the answer to a post without an event.
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

func TestPauseIsSharedAndNeverShortened(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.anyLimiter(t), s.anyLimiter(t)
		one.paused(s, aChannel, 0)
		one.refused("p1", 10*time.Minute)
		other.paused(s, aChannel, 10*time.Minute)
		if end := s.ZScore(t.Context(), "{n}:pauses", aChannel).Val(); end != float64(int64(end)) || end < 1e15 {
			t.Errorf("the pause ends at %f, expected microseconds to the last digit", end)
		}
		other.refused("p2", 5*time.Minute)
		one.paused(s, aChannel, 10*time.Minute)
		other.refused("p2", 5*time.Minute) // repeated
		one.paused(s, aChannel, 10*time.Minute)
		s.advance(t, 11*time.Second)
		other.refused("p3", 30*time.Minute)
		one.paused(s, aChannel, 30*time.Minute)
		kit.Check(t, s.ScriptFlush(t.Context()).Err())
		s.anyLimiter(t).paused(s, aChannel, 30*time.Minute)
	})
}

// Two channels of which the one is paused.
const busy, idle = "C0000BUSY", "C0000IDLE"

// Slack limits each channel: one that it refuses costs the others nothing, whether it has posted much before
// or nothing.
func TestRefusedChannelPausesNoOther(t *testing.T) {
	for _, posts := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d posts before", posts), func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *store) {
				limiter := s.anyLimiter(t)
				for i := range posts {
					limiter.postsTo(busy, fmt.Sprint("b", i))
				}
				answer := ratelimit.Answer{Channel: busy, Name: "b0", RetryAfter: 12 * time.Second}
				if left := limiter.answer(answer, ratelimit.PausedChannel); left != 12*time.Second {
					t.Errorf("%s, expected 12s", left)
				}
				limiter.wantDigest(ratelimit.ChannelPaused, busy, "b9")
				limiter.postsTo(idle, "i0")
				limiter.paused(s, busy, 12*time.Second)
				limiter.paused(s, "", 0)
			})
		})
	}
}

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
		refuse("b1", 5*time.Second) // the reply was lost
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b3")
		s.advance(t, 5*time.Second)
		limiter.postsTo(busy, "b3") // although b1 may take longer than that
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
		limiter.posted("p1") // nothing is left beside the pause
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
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b2") // its own pause still has to be tried
		refuse(idle, ratelimit.PausedChannel)                   // the first since
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

// A minute after a pause no post waits for a probe.
func TestOldPauseNeedsNoProbe(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.refused("p0", time.Second)
		s.advance(t, 62*time.Second)
		limiter.postsTo(aChannel, "p1")
		limiter.postsTo(aChannel, "p2")
	})
}

// A probe that began in the future is from before the clock was set back. Nobody waits for it.
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
