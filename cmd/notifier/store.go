package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/stats"
	"notifier/internal/status"
)

// store is the limits as the settings have them, and what Redis knows: all that commands need that only read it, and what a
// worker decides with.
type store struct {
	limiter *ratelimit.Limiter
	pause   *ratelimit.Pause
	status  status.Source
	close   func()
}

// openStore reads the settings of Redis and of the limits, and connects to nothing.
func openStore() (store, error) {
	redis.SetLogger(redisLog{zap.NewNop()}) // what it has to say comes back as an error too
	f := &faults{}
	var c config
	env := readEnvironment(f)
	parseRedis(env, f, &c)
	parseLimits(env, f, &c)
	closeRedis := func() {
		if c.redis != nil {
			_ = c.redis.Close() // nothing is written through it
		}
	}
	if err := f.err(); err != nil {
		closeRedis()
		return store{}, err
	}
	s, err := newStore(c)
	if err != nil {
		closeRedis()
		return store{}, err
	}
	s.close = closeRedis
	return s, nil
}

// newStore makes a store over the Redis of these settings, which stays the caller's to close.
func newStore(c config) (store, error) {
	limiter, err := ratelimit.New(c.redis, c.namespace, c.rules, c.dedupe)
	if err != nil {
		return store{}, err
	}
	pause, err := ratelimit.NewPause(c.redis, c.namespace)
	if err != nil {
		return store{}, err
	}
	reader, err := stats.NewReader(c.redis, c.namespace)
	if err != nil {
		return store{}, fmt.Errorf("REDIS_NAMESPACE: %w", err)
	}
	return store{limiter: limiter, pause: pause, status: status.Source{Limiter: limiter, Pause: pause, Stats: reader}}, nil
}
