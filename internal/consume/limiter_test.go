package consume_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"notifier/internal/consume"
	"notifier/internal/ratelimit"
)

// countingLimiter counts the calls that have failed to decide.
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

// refusingLimiter refuses the events with these ids, and asks the real limiter about all others.
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

// latchingLimiter answers one post that its channel is paused for ten minutes, and fails the other one when
// that has been taken note of.
type latchingLimiter struct {
	consume.Limiter
	begun *atomic.Int64
	noted chan struct{} // closed then
}

func (l latchingLimiter) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	switch l.begun.Add(1) {
	case 1:
		<-l.noted
		return ratelimit.Permit{}, errors.New("redis: i/o timeout")
	case 2:
		return ratelimit.Permit{Status: ratelimit.ChannelPaused, Wait: 10 * time.Minute}, nil
	}
	return l.Limiter.Begin(ctx, post)
}
