package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// fails expects every call to be an error that says why, and none to be a decision.
func (c caller) fails(why string) {
	c.t.Helper()
	ctx, e := c.t.Context(), event("e", "a")
	for call, attempt := range map[string]func() error{
		"Admit": func() error {
			decisions, err := c.Admit(ctx, []ratelimit.Request{e, event("f", "b")})
			if decisions != nil {
				c.t.Errorf("decided %+v beside the error %v", decisions, err)
			}
			return err
		},
		"Refund": func() error {
			refunded, err := c.Refund(ctx, e, "")
			if refunded {
				c.t.Errorf("refunded beside the error %v", err)
			}
			return err
		},
		"Ready": func() error { return c.Ready(ctx) },
		"Check": func() error { return c.Check(ctx) },
		"Sent":  func() error { return c.Sent(ctx, e) },
	} {
		var err error
		kit.Within(kit.Patience, func() bool { // a busy machine may need longer than a call has
			err = attempt()
			return err == nil || !strings.Contains(err.Error(), "timeout")
		})
		if err == nil || !strings.Contains(err.Error(), why) || errors.Is(err, ratelimit.ErrUnsuitable) {
			c.t.Errorf("%s: %v, expected an error that says %q and may pass", call, err, why)
		}
	}
}

// within fails if a call takes longer than dialing and calling may take together, with room for a slow
// machine.
func within(t *testing.T, call func()) {
	t.Helper()
	started := time.Now()
	call()
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestRedisDownDecidesNothing(t *testing.T) {
	limiter := limiterAt(t, "redis://"+kit.FreeAddr(t))
	within(t, func() { limiter.fails("connection refused") })
}

func TestCancelledCallEndsAtOnce(t *testing.T) {
	limiter := limiterAt(t, "redis://"+silent(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	within(t, func() {
		if _, err := limiter.Admit(ctx, events(1, "e", "a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, expected the deadline's error", err)
		}
	})
}

func TestReadOnlyReplicaAdmitsNothing(t *testing.T) {
	s := onProcess(t)
	limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", ""), day)
	limiter.admit(event("before", "a"))
	before := s.contents(t)
	kit.Check(t, s.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	decisions, err := limiter.Admit(t.Context(), events(2, "e", "a"))
	if err == nil || decisions != nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("%v, %v; expected an error that says READONLY", decisions, err)
	}
	if got := limiter.dryRun("a", 1); got.Verdict != ratelimit.Admitted {
		t.Errorf("dry run: %+v, expected an admission", got)
	}
	if err := limiter.Sent(t.Context(), event("before", "a")); err == nil {
		t.Error("recorded as sent on a replica")
	}
	s.unchanged(t, before)
	kit.Check(t, s.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	limiter.admits(events(2, "e", "a")...)
}

func TestOutOfMemoryAdmitsNothing(t *testing.T) {
	s := onProcess(t, "--maxmemory-policy", "noeviction")
	limiter := s.limiter(t, kit.Rules("100/30m", "2/30m", ""), day)
	limiter.admit(events(2, "before", "a")...)
	before := s.contents(t)
	s.ConfigSet(t.Context(), "maxmemory", "1")
	decisions, err := limiter.Admit(t.Context(), events(2, "e", "b"))
	if err == nil || decisions != nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("%v, %v; expected an error that says OOM", decisions, err)
	}
	if got := limiter.dryRun("b", 1); got.Verdict != ratelimit.Admitted {
		t.Errorf("dry run: %+v, expected an admission", got)
	}
	s.unchanged(t, before)
	s.ConfigSet(t.Context(), "maxmemory", "0")
	limiter.admits(events(2, "e", "b")...)
	limiter.want(ratelimit.Category, event("x", "a"))
}
