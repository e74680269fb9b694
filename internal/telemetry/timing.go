package telemetry

import (
	"context"
	"time"

	"notifier/internal/consume"
	"notifier/internal/consume/post"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// TimeLimiter wraps a limiter and times its script calls.
func (m *Metrics) TimeLimiter(limiter consume.Limiter) consume.Limiter {
	return timedLimiter{limiter, m}
}

// TimePoster wraps a poster and times its posts.
func (m *Metrics) TimePoster(slack post.Slack) post.Slack { return timedPoster{slack, m} }

type timedLimiter struct {
	consume.Limiter
	metrics *Metrics
}

func (l timedLimiter) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	began := time.Now()
	decisions, err := l.Limiter.Admit(ctx, batch)
	if err == nil {
		l.metrics.decided(len(batch), time.Since(began))
	}
	return decisions, err
}

type timedPoster struct {
	post.Slack
	metrics *Metrics
}

func (p timedPoster) Post(ctx context.Context, ev event.Event) (slackout.Receipt, error) {
	began := time.Now()
	receipt, err := p.Slack.Post(ctx, ev)
	result := postOK
	if err != nil {
		result = slackout.AsError(err).Class.String()
	}
	p.metrics.posted(result, time.Since(began))
	return receipt, err
}
