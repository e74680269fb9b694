package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"notifier/bench/peers/script"
)

// limits are how many events a window takes, of all categories and of one.
type limits struct {
	global, category int
	window           time.Duration
}

// limiter says whether an event may be sent, and charges it if so.
type limiter interface {
	admit(ctx context.Context, category, id string) (bool, error)
}

func newLimiter(kind string, l limits) (limiter, error) {
	if kind == "memory" {
		return &memory{limits: l, categories: map[string][]time.Time{}}, nil
	}
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return nil, err
	}
	options.PoolSize = deciding
	client := redis.NewClient(options)
	switch kind {
	case "script":
		return plain{limits: l, client: client, script: redis.NewScript(script.Admit)}, nil
	case "redis_rate":
		return rate{limits: l, limiter: redis_rate.NewLimiter(client)}, nil
	}
	return nil, fmt.Errorf("no limiter %q", kind)
}

// plain calls the script with two sets.
type plain struct {
	limits
	client *redis.Client
	script *redis.Script
}

func (p plain) admit(ctx context.Context, category, id string) (bool, error) {
	answer, err := p.script.Run(ctx, p.client, []string{"{plain}:global", "{plain}:category:" + category},
		p.global, p.category, p.window.Microseconds(), id).Int()
	return answer == 1, err
}

// rate asks redis_rate, which has one limit for a call: the category's first, so that a busy category takes
// nothing from the global limit. What the global limit refuses is charged to its category all the same.
type rate struct {
	limits
	limiter *redis_rate.Limiter
}

func (r rate) admit(ctx context.Context, category, _ string) (bool, error) {
	result, err := r.limiter.Allow(
		ctx,
		"category:"+category,
		redis_rate.Limit{Rate: r.category, Burst: r.category, Period: r.window},
	)
	if err != nil || result.Allowed == 0 {
		return false, err
	}
	result, err = r.limiter.Allow(
		ctx,
		"global",
		redis_rate.Limit{Rate: r.global, Burst: r.global, Period: r.window},
	)
	return err == nil && result.Allowed == 1, err
}

// memory keeps the times of admissions in the process: exact for one process, and forgotten when it ends.
type memory struct {
	limits
	mu         sync.Mutex
	all        []time.Time
	categories map[string][]time.Time
}

func (m *memory) admit(_ context.Context, category, _ string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.all = after(m.all, now.Add(-m.window))
	own := after(m.categories[category], now.Add(-m.window))
	m.categories[category] = own
	if len(m.all) >= m.global || len(own) >= m.category {
		return false, nil
	}
	m.all, m.categories[category] = append(m.all, now), append(own, now)
	return true, nil
}

// after is what of sorted times is after another one.
func after(times []time.Time, oldest time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(oldest) {
		times = times[1:]
	}
	return times
}
