package main

import (
	"context"
	"errors"
	"time"

	"notifier/internal/consume"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// timedLimiter is a limiter whose script calls are timed.
type timedLimiter struct {
	consume.Limiter
	metrics *metrics
}

func (l timedLimiter) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	began := time.Now()
	decisions, err := l.Limiter.Admit(ctx, batch)
	if err == nil {
		l.metrics.decided(len(batch), time.Since(began))
	}
	return decisions, err
}

// timedPoster is a poster whose posts are timed.
type timedPoster struct {
	consume.Poster
	metrics *metrics
}

func (p timedPoster) Post(ctx context.Context, ev event.Event) (slackout.Receipt, error) {
	began := time.Now()
	receipt, err := p.Poster.Post(ctx, ev)
	result := "ok"
	var failure *slackout.Error
	if errors.As(err, &failure) {
		result = failure.Class.String()
	}
	p.metrics.posted(result, time.Since(began))
	return receipt, err
}
