package consume_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"notifier/internal/consume"
	"notifier/internal/ratelimit"
)

// countingLimiter counts failed calls of Admit.
type countingLimiter struct {
	consume.Limiter
	failed *atomic.Int64
}

func (l countingLimiter) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	decisions, err := l.Limiter.Admit(ctx, batch)
	if err != nil {
		l.failed.Add(1)
	}
	return decisions, err
}

// refusingLimiter refuses the listed events and leaves all others to the real limiter.
type refusingLimiter struct {
	consume.Limiter
	byID map[string]ratelimit.Decision
}

func (l refusingLimiter) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	decisions, err := l.Limiter.Admit(ctx, batch)
	for i := range decisions {
		if refusal, found := l.byID[batch[i].ID]; found {
			decisions[i] = refusal
		}
	}
	return decisions, err
}

// latchingLimiter pauses the workspace for ten minutes on the second Begin. The first Begin fails once
// noted is closed.
type latchingLimiter struct {
	consume.Limiter
	begun *atomic.Int64
	noted chan struct{} // closed once the pause has been noted
}

func (l latchingLimiter) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	switch l.begun.Add(1) {
	case 1:
		<-l.noted
		return ratelimit.Permit{}, errors.New("redis: i/o timeout")
	case 2:
		return ratelimit.Permit{Status: ratelimit.WorkspacePaused, Wait: 10 * time.Minute}, nil
	}
	return l.Limiter.Begin(ctx, post)
}
