package consume_test

import (
	"context"
	"sync/atomic"

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
