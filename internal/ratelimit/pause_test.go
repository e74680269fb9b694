package ratelimit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// left returns what is left of the pause of a channel, or of the workspace if channel is empty; 0: there is none.
func (c caller) left(channel string) time.Duration {
	c.t.Helper()
	pauses, err := c.Pauses(c.t.Context())
	testkit.Check(c.t, err)
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
	return s.limiter(t, testkit.Rules("1000/30m", "1000/30m", ""), day)
}

func TestAPauseHoldsForAllReplicasAndIsNeverShortened(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.anyLimiter(t), s.anyLimiter(t)
		one.paused(s, "", 0)
		one.refused("p1", 10*time.Minute)
		other.paused(s, "", 10*time.Minute)
		if end := s.ZScore(t.Context(), "{n}:pauses", "*").Val(); end != float64(int64(end)) || end < 1e15 {
			t.Errorf("the pause ends at %f, expected microseconds to the last digit", end)
		}
		other.refused("p2", 5*time.Minute)
		one.paused(s, "", 10*time.Minute)
		other.refused("p2", 5*time.Minute) // repeated
		one.paused(s, "", 10*time.Minute)
		s.advance(t, 11*time.Second)
		other.refused("p3", 30*time.Minute)
		one.paused(s, "", 30*time.Minute)
		testkit.Check(t, s.ScriptFlush(t.Context()).Err())
		s.anyLimiter(t).paused(s, "", 30*time.Minute)
	})
}

func TestAPauseRunsOut(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.refused("p1", 10*time.Minute)
		s.advance(t, 4*time.Minute)
		limiter.paused(s, "", 6*time.Minute)
		limiter.refused("p2", 8*time.Minute) // from now, so two minutes longer
		limiter.paused(s, "", 8*time.Minute)
		s.advance(t, 8*time.Minute)
		limiter.paused(s, "", 0)
		limiter.paused(s, aChannel, 0)
		s.advance(t, time.Minute+time.Second) // for so long the next post is a probe
		if left, err := limiter.LongestPause(t.Context()); err != nil || left != 0 {
			t.Errorf("%s, %v", left, err)
		}
		if got := s.contents(t); got != "" {
			t.Errorf("left over:\n%s", got)
		}
	})
}

func TestAPauseRunsOutByItself(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		started := time.Now()
		limiter.refused("p1", 50*time.Millisecond)
		s.eventually(t, 2*time.Millisecond, func() error {
			if left := limiter.left(""); left > 50*time.Millisecond {
				t.Fatalf("%s of the pause are left, expected at most 50ms", left)
			} else if left > 0 {
				return fmt.Errorf("%s of the pause are left", left)
			}
			return nil
		})
		if s.embedded == nil && time.Since(started) < 50*time.Millisecond {
			t.Errorf("over after %s", time.Since(started))
		}
	})
}

func TestAPauseIsNoMatterOfTheLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, testkit.Rules("1/30m", "1/30m", ""), day)
		limiter.refused("p1", time.Hour)
		limiter.want(ratelimit.Admitted, event("e", "a"))
	})
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

// Slack limits each channel: one that is busy costs the others nothing.
func TestABusyChannelIsPausedAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		const busy, quiet = "C0000BUSY", "C000QUIET"
		for i := range 4 {
			limiter.wantDigest(ratelimit.Granted, busy, fmt.Sprint("b", i))
		}
		left := limiter.answer(ratelimit.Answer{Channel: busy, Name: "b3", RetryAfter: 12 * time.Second}, ratelimit.PausedChannel)
		if left != 12*time.Second {
			t.Errorf("%s, expected 12s", left)
		}
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b4")
		limiter.wantDigest(ratelimit.Granted, quiet, "q0")
		limiter.paused(s, busy, 12*time.Second)
		limiter.paused(s, "", 0)

		s.advance(t, 12*time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, busy, "b5")
		limiter.wantDigest(ratelimit.ChannelPaused, busy, "b6")
		limiter.wantDigest(ratelimit.Granted, quiet, "q1")
		for range 2 { // the second time, because the reply was lost
			// It is quiet by now, but this goes on with its own pause.
			limiter.answer(ratelimit.Answer{Channel: busy, Name: "b5", RetryAfter: 10 * time.Second}, ratelimit.PausedChannel)
		}
		s.advance(t, 10*time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, busy, "b7")
		limiter.answer(ratelimit.Answer{Channel: busy, Name: "b7"}, ratelimit.NoPause)
		limiter.wantDigest(ratelimit.Granted, busy, "b8")
	})
}

func TestAQuietChannelThatIsRefusedPausesTheWorkspace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		for i, posts := range []int{1, 2, 3} {
			channel := fmt.Sprint("C000000", i)
			for n := range posts {
				limiter.wantDigest(ratelimit.Granted, channel, fmt.Sprint(channel, n))
			}
			want := ratelimit.PausedWorkspace
			if posts > 2 {
				want = ratelimit.PausedChannel
			}
			limiter.answer(ratelimit.Answer{Channel: channel, Name: channel + "0", RetryAfter: time.Second}, want)
			if want == ratelimit.PausedWorkspace {
				limiter.wantDigest(ratelimit.WorkspacePaused, "C000OTHER", "o")
			}
			s.advance(t, 62*time.Second)
		}
	})
}

// A refused probe of the workspace goes on with its pause, whatever its channel has posted.
func TestTheWorkspacesProbeGoesOnWithItsPause(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		for i := range 4 {
			limiter.wantDigest(ratelimit.Granted, "C0000BUSY", fmt.Sprint("b", i))
		}
		limiter.refused("p1", time.Second)
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, "C0000BUSY", "b4")
		limiter.wantDigest(ratelimit.WorkspacePaused, "C000OTHER", "o")
		limiter.answer(ratelimit.Answer{Channel: "C0000BUSY", Name: "b4", RetryAfter: time.Second}, ratelimit.PausedWorkspace)
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, "C000OTHER", "o")
		limiter.answer(ratelimit.Answer{Channel: "C000OTHER", Name: "o"}, ratelimit.NoPause)
		limiter.wantDigest(ratelimit.Granted, "C000OTHER", "o2")
		limiter.wantDigest(ratelimit.GrantedAsProbe, "C0000BUSY", "b5") // its own pause still has to be tried
	})
}

// Three channels at a time, each within its pace, are not the channels' doing.
func TestThreeRefusedChannelsPauseTheWorkspaceWhereThePaceHolds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		for pace, want := range map[string]ratelimit.PauseScope{"10/10s": ratelimit.PausedWorkspace, "off": ratelimit.PausedChannel} {
			limiter := s.paced(t, pace)
			for i, channel := range []string{"C000000A", "C000000B", "C000000C"} {
				for n := range 4 {
					limiter.wantDigest(ratelimit.Granted, channel, fmt.Sprint(channel, n))
				}
				scope := ratelimit.PausedChannel
				if i == 2 {
					scope = want
				}
				limiter.answer(ratelimit.Answer{Channel: channel, Name: channel + "0", RetryAfter: time.Second}, scope)
			}
			s.advance(t, 2*time.Minute)
		}
	})
}

// Channels whose pauses end together show nothing new when their probes are refused.
func TestChannelsOwnProbesDoNotPauseTheWorkspace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "10/10s")
		refuse := func(channel, name string, want ratelimit.PauseScope) {
			t.Helper()
			limiter.answer(ratelimit.Answer{Channel: channel, Name: name, RetryAfter: 2 * time.Second}, want)
		}
		channels := []string{"C000000A", "C000000B", "C000000C", "C000000D", "C000000E", "C000000F"}
		for i, channel := range channels {
			for n := range 4 {
				limiter.wantDigest(ratelimit.Granted, channel, fmt.Sprint(channel, n))
			}
			if i < 3 { // more than a second apart
				refuse(channel, channel+"0", ratelimit.PausedChannel)
				s.advance(t, 1200*time.Millisecond)
			}
		}
		s.advance(t, 2*time.Second)
		for _, channel := range channels[:3] {
			limiter.wantDigest(ratelimit.GrantedAsProbe, channel, channel+"probe")
		}
		refuse(channels[0], "C000000Aprobe", ratelimit.PausedChannel)
		refuse(channels[1], "C000000Bprobe", ratelimit.PausedChannel)
		refuse(channels[3], "C000000D0", ratelimit.PausedChannel) // the third in a second, and the first that counts
		refuse(channels[4], "C000000E0", ratelimit.PausedChannel)
		refuse(channels[5], "C000000F0", ratelimit.PausedWorkspace)
		refuse(channels[2], "C000000Cprobe", ratelimit.PausedChannel)
	})
}

func TestPausesAreNamedAsInTheSettings(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.wantDigest(ratelimit.Granted, "#alerts", "a0")
		limiter.answer(ratelimit.Answer{Channel: "#alerts", ID: "C0ALERTS1", Name: "a0"}, ratelimit.NoPause)
		limiter.answer(ratelimit.Answer{Channel: "#alerts", Name: "a0", RetryAfter: 12 * time.Second}, ratelimit.PausedWorkspace)
		pauses, err := limiter.Pauses(t.Context())
		testkit.Check(t, err)
		if len(pauses) != 2 || pauses[0].Channel != "" || pauses[0].ID != "" || pauses[1].Channel != "#alerts" || pauses[1].ID != "C0ALERTS1" {
			t.Fatalf("%+v", pauses)
		}
		got := []string{pauses[0].String(), pauses[1].String()}
		if difference := cmp.Diff([]string{"Slack asked to wait 12 s", "#alerts: Slack asked to wait 12 s"}, got); difference != "" {
			t.Errorf("(-want +got):\n%s", difference)
		}
	})
}

func TestPauseErrorsAreNoPause(t *testing.T) {
	limiter := limiterAt(t, "redis://"+testkit.FreeAddr(t))
	if left, err := limiter.LongestPause(t.Context()); err == nil || left != 0 {
		t.Errorf("%s, %v; expected an error", left, err)
	}
	scope, left, err := limiter.Answered(t.Context(), ratelimit.Answer{Name: "p", RetryAfter: time.Second})
	if err == nil || scope != ratelimit.NoPause || left != 0 {
		t.Error(errors.Join(err, fmt.Errorf("%d for %s with Redis down", scope, left)))
	}
}

// The answer to a post from before the pause does not show what Slack takes after it.
func TestOnlyTheProbesAnswerEndsAPause(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		limiter.wantDigest(ratelimit.Granted, aChannel, "early")
		limiter.refused("p0", time.Second) // of the channel and the workspace
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, "C000OTHER", "other") // of the workspace alone
		limiter.answered("early")
		limiter.wantDigest(ratelimit.WorkspacePaused, "C000OTHER", "p1")
		limiter.answer(ratelimit.Answer{Channel: "C000OTHER", Name: "other"}, ratelimit.NoPause)
		limiter.wantDigest(ratelimit.GrantedAsProbe, aChannel, "p2") // of the channel
		limiter.answered("early")
		limiter.wantDigest(ratelimit.ChannelPaused, aChannel, "p3")
		limiter.answered("p2")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p3")
	})
}

// A name's probe shows the channel's ID, which another replica that uses the ID has paused since.
func TestANamesProbeLeavesThePauseOfItsIDAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.anyLimiter(t)
		for i := range 3 {
			limiter.wantDigest(ratelimit.Granted, "C000000A", fmt.Sprint("i", i))
			limiter.wantDigest(ratelimit.Granted, "#a", fmt.Sprint("n", i))
			limiter.answer(ratelimit.Answer{Channel: "#a", Name: fmt.Sprint("n", i)}, ratelimit.NoPause)
		}
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "n2", RetryAfter: time.Second}, ratelimit.PausedChannel)
		s.advance(t, time.Second)
		limiter.wantDigest(ratelimit.GrantedAsProbe, "#a", "n3")
		limiter.answer(ratelimit.Answer{Channel: "C000000A", Name: "i2", RetryAfter: 10 * time.Minute}, ratelimit.PausedChannel)
		limiter.answer(ratelimit.Answer{Channel: "#a", Name: "n3", ID: "C000000A"}, ratelimit.NoPause)
		limiter.paused(s, "#a", 10*time.Minute)
	})
}

func TestThreeRefusalsOverMoreThanASecondPauseChannelsAlone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "10/10s")
		for _, channel := range []string{"C000000A", "C000000B", "C000000C"} {
			for n := range 4 {
				limiter.wantDigest(ratelimit.Granted, channel, fmt.Sprint(channel, n))
			}
			limiter.answer(ratelimit.Answer{Channel: channel, Name: channel + "0", RetryAfter: time.Second}, ratelimit.PausedChannel)
			s.advance(t, 700*time.Millisecond)
		}
	})
}

// What is kept for the digest has not been posted yet.
func TestASlotThatIsKeptDoesNotMakeAChannelBusy(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.paced(t, "2/1m")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p1")
		limiter.wantDigest(ratelimit.Granted, aChannel, "p2")
		limiter.wantPaced(s, time.Minute, ratelimit.Post{Name: "digest", First: true})
		limiter.refused("p2", time.Second)
	})
}
