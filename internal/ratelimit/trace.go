package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Trace is what Redis still knows about one event. Unknown times are zero.
type Trace struct {
	Category string    // empty: its slot has left every window, or none of the named categories holds it
	Admitted time.Time // when the script admitted it
	InFlight bool      // admitted and not yet in Slack
	Posts    int       // in flight: posts of it that have begun
	LastPost time.Time // in flight: when the last of them began
	Sent     time.Time // when it was recorded as sent
}

// Known reports whether Redis knows the event at all. It never knows a refused one, because a refusal stores nothing.
func (t Trace) Known() bool { return !t.Admitted.IsZero() || !t.Sent.IsZero() }

// Trace returns what Redis knows about an event: whether it is in flight, holds a slot, or was sent within the dedupe
// window. Its category is looked up among the named ones. Errors are as for Admit.
func (l *Limiter) Trace(ctx context.Context, id string, categories ...string) (Trace, error) {
	id = member(id)
	pipe := l.redis.Pipeline()
	record := pipe.HGet(ctx, l.keys.inFlight(), id)
	admitted := pipe.ZScore(ctx, l.keys.global(), id)
	sent := pipe.ZScore(ctx, l.keys.sent(), id)
	slots := make([]*redis.FloatCmd, len(categories))
	for i, category := range categories {
		slots[i] = pipe.ZScore(ctx, l.keys.category(category), id)
	}
	commands, _ := pipe.Exec(ctx)
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) { // Nil: the key or member does not exist
			return Trace{}, fmt.Errorf("redis: cannot look up %q: %w", id, err)
		}
	}
	var trace Trace
	for i, category := range categories {
		if slots[i].Err() == nil {
			trace.Category = category
			break
		}
	}
	if admitted.Err() == nil {
		trace.Admitted = at(admitted.Val())
	}
	if sent.Err() == nil {
		trace.Sent = at(sent.Val())
	}
	if record.Err() == nil {
		inFlight, err := ParseInFlight(record.Val())
		if err != nil {
			return Trace{}, fmt.Errorf("redis: %s: %w", l.keys.inFlight(), err)
		}
		trace.InFlight, trace.Admitted = true, inFlight.Admitted
		trace.Posts, trace.LastPost = inFlight.Posts, inFlight.LastPost
	}
	return trace, nil
}

func at(score float64) time.Time { return time.UnixMicro(int64(score)).UTC() }
