package app

import (
	"fmt"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
)

// Store is the limits as the settings have them, and what Redis knows about them: what a worker decides with,
// and all that commands need that only read it.
type Store struct {
	Limits  ratelimit.Rules
	Limiter *ratelimit.Limiter
	Status  status.Source

	Steering *steering.Store
}

// OpenStore makes a Store over the Redis client of the settings, which stays the caller's to close. own is
// what a status depends on of them. It connects to nothing. An error means that the settings do not fit
// together.
func OpenStore(s settings.Store, own status.Config) (Store, error) {
	limiter, err := ratelimit.New(s.Redis, s.Namespace, s.Limits, s.Dedupe)
	if err != nil {
		return Store{}, err
	}
	reader, err := stats.NewReader(s.Redis, s.Namespace)
	if err != nil {
		return Store{}, fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	orders, err := steering.NewStore(s.Redis, s.Namespace)
	if err != nil {
		return Store{}, fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	limiterFor := func(
		limits ratelimit.Rules, dedupe time.Duration, instead ratelimit.Temporary,
	) (status.Limiter, error) {
		limiter, err := ratelimit.New(s.Redis, s.Namespace, limits, dedupe)
		if err == nil {
			limiter.SetTemporary(instead)
		}
		return limiter, err
	}
	source := status.Source{Limiter: limiter, Stats: reader, Own: own, LimiterFor: limiterFor, Steering: orders}
	return Store{Limits: s.Limits, Limiter: limiter, Status: source, Steering: orders}, nil
}
