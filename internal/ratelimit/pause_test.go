package ratelimit_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// pausing asks and extends the pause of namespace "n" through a connection of its own, as one replica does.
type pausing struct {
	*ratelimit.Pause
	t *testing.T
}

func (s *store) pause(t *testing.T) pausing {
	t.Helper()
	pause, err := ratelimit.NewPause(s.connect(t), "n")
	testkit.Check(t, err)
	return pausing{Pause: pause, t: t}
}

func (p pausing) extend(d time.Duration) {
	p.t.Helper()
	testkit.Check(p.t, p.Extend(p.t.Context(), d))
}

func (p pausing) lift() {
	p.t.Helper()
	testkit.Check(p.t, p.Lift(p.t.Context()))
}

// expect allows for the time that has passed on a server whose clock runs by itself.
func (p pausing) expect(s *store, want time.Duration) {
	p.t.Helper()
	got, err := p.Remaining(p.t.Context())
	testkit.Check(p.t, err)
	if got > want || s.embedded != nil && got != want || want > time.Minute && got < want-time.Minute {
		p.t.Errorf("%s of the pause are left, expected %s", got, want)
	}
}

func TestNobodyIsPausedUntilSomebodyAsks(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		pause := s.pause(t)
		pause.expect(s, 0)
		pause.extend(0)
		pause.extend(-time.Hour)
		pause.expect(s, 0)
		if got := s.contents(t); got != "" {
			t.Errorf("stored:\n%s", got)
		}
	})
}

func TestAPauseHoldsForAllReplicasAndIsNeverShortened(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		one, other := s.pause(t), s.pause(t)
		one.extend(10 * time.Minute)
		other.expect(s, 10*time.Minute)
		if end := s.Get(t.Context(), "{n}:pause").Val(); !regexp.MustCompile(`^\d{16}$`).MatchString(end) {
			t.Errorf("the pause ends at %q, expected microseconds to the last digit", end)
		}
		other.extend(5 * time.Minute)
		other.extend(0)
		one.expect(s, 10*time.Minute)
		other.extend(30 * time.Minute)
		one.expect(s, 30*time.Minute)
		testkit.Check(t, s.ScriptFlush(t.Context()).Err())
		s.pause(t).expect(s, 30*time.Minute)
	})
}

func TestAPauseRunsOut(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		pause := s.pause(t)
		pause.extend(10 * time.Minute)
		s.advance(t, 4*time.Minute)
		pause.expect(s, 6*time.Minute)
		pause.extend(8 * time.Minute) // from now, so two minutes longer
		pause.expect(s, 8*time.Minute)
		s.advance(t, 8*time.Minute)
		pause.expect(s, 0)
		s.advance(t, time.Minute+time.Second) // for so long the next post is a probe
		if got := s.contents(t); got != "" {
			t.Errorf("left over:\n%s", got)
		}
	})
}

func TestAPauseRunsOutByItself(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		pause := s.pause(t)
		started := time.Now()
		pause.extend(50 * time.Millisecond)
		s.eventually(t, 2*time.Millisecond, func() error {
			left, err := pause.Remaining(t.Context())
			if left > 50*time.Millisecond {
				t.Fatalf("%s of the pause are left, expected at most 50ms", left)
			}
			if left > 0 {
				err = fmt.Errorf("%s of the pause are left", left)
			}
			return err
		})
		if s.embedded == nil && time.Since(started) < 50*time.Millisecond {
			t.Errorf("over after %s", time.Since(started))
		}
	})
}

func TestAPauseIsNoMatterOfTheLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		s.pause(t).extend(time.Hour)
		s.limiter(t, testkit.Rules("1/30m", "1/30m", ""), day).want(ratelimit.Admitted, event("e", "a"))
	})
}
