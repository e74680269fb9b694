package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// Pause is the time during which no replica posts to Slack, because Slack has asked one of them to wait. When it is over
// one replica posts first; see Limiter.Begin. It is stored in Redis next to the limits and is safe for concurrent use.
type Pause struct {
	redis  redis.UniversalClient
	keys   []string
	script *redis.Script
}

// NewPause returns a Pause that uses an open client; namespace as for New.
func NewPause(client redis.UniversalClient, namespace string) (*Pause, error) {
	names, err := newKeys(namespace)
	if err != nil {
		return nil, err
	}
	return &Pause{redis: client, keys: []string{names.pause(), names.probe()}, script: redis.NewScript(lua.Pause)}, nil
}

// Remaining returns how much of the pause is left; 0: none.
func (p *Pause) Remaining(ctx context.Context) (time.Duration, error) { return p.run(ctx, 0) }

// Extend makes all replicas pause for at least d from now. It never shortens a pause.
func (p *Pause) Extend(ctx context.Context, d time.Duration) error {
	_, err := p.run(ctx, max(d, 0))
	return err
}

// Lift ends the pause after a successful probe: all replicas may post. A pause that has begun since then stays.
func (p *Pause) Lift(ctx context.Context) error {
	_, err := p.run(ctx, -time.Microsecond)
	return err
}

func (p *Pause) run(ctx context.Context, d time.Duration) (time.Duration, error) {
	left, err := p.script.Run(ctx, p.redis, p.keys, micros(d)).Int64()
	if err != nil {
		return 0, fmt.Errorf("redis: cannot read or change the pause: %w", err)
	}
	return time.Duration(left) * time.Microsecond, nil
}
