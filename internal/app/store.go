package app

import (
	"fmt"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
)

// Store holds the limits of the settings and the readers and writers of their state in Redis.
type Store struct {
	Limiter  *ratelimit.Limiter
	Reports  *report.Reader
	Status   status.Source
	Steering *steering.Store
}

// OpenStore makes a Store over the Redis client of the settings, which the caller closes. The status uses own
// if no worker shows its settings. OpenStore connects to nothing. An error means that the settings do not fit
// together.
func OpenStore(s settings.Store, own config.Deciding) (Store, error) {
	limiter, err := ratelimit.New(s.Redis, s.Namespace, s.Limits, s.Dedupe)
	if err != nil {
		return Store{}, err
	}
	overrides, err := steering.NewStore(s.Redis, s.Namespace)
	if err != nil {
		return Store{}, fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	reports, err := report.NewReader(s.Redis, s.Namespace)
	if err != nil {
		return Store{}, fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	source := status.Source{Reports: reports, Steering: overrides, Own: own, LimiterFor: limiterFor(s)}
	return Store{Limiter: limiter, Reports: reports, Status: source, Steering: overrides}, nil
}

// limiterFor returns a function that makes limiters for other limits in the same store. They only read.
func limiterFor(
	s settings.Store,
) func(ratelimit.Rules, time.Duration, ratelimit.Temporary) (status.Limiter, error) {
	return func(rules ratelimit.Rules, dedupe time.Duration, temporary ratelimit.Temporary) (status.Limiter, error) {
		limiter, err := ratelimit.New(s.Redis, s.Namespace, rules, dedupe)
		if err != nil {
			return nil, err
		}
		limiter.SetTemporary(temporary)
		return limiter, nil
	}
}
