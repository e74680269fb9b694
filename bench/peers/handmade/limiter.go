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

// limits holds the number of events that fit into a window, for all categories and for each one.
type limits struct {
	global, category int
	window           time.Duration
}

// limiter reports whether an event may be sent. If so, it charges the event.
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

// plain decides with the plain script, which all processes share through Redis.
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

// rate decides with redis_rate, which checks one limit per call. The category comes first, so a busy category
// does not use up the global limit. An event that the global limit refuses is still charged to its category.
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

// memory keeps admission times in the process. It is exact for one process, but a restart forgets them.
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

// after returns the part of sorted times that is later than oldest.
func after(times []time.Time, oldest time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(oldest) {
		times = times[1:]
	}
	return times
}
