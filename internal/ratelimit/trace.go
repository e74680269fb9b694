package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Trace is what Redis still knows about one event. Unknown times are zero.
type Trace struct {
	Category string
	Source   string    // what its id is unique within, or a hash of that; empty: its category
	Admitted time.Time // in flight: when the script admitted it
	InFlight bool      // admitted and not yet in Slack
	Posts    int       // in flight: posts of it that have begun
	LastPost time.Time // in flight: when the last of them began
	Failed   bool      // in flight: posts have begun, and all of them certainly failed
	Sent     time.Time // when it was recorded as sent
}

// known reports whether Redis knows the event at all. It never knows a refused one, because a refusal stores
// nothing.
func (t Trace) known() bool { return !t.Admitted.IsZero() || !t.Sent.IsZero() }

// latest is the last thing that is known to have happened to it.
func (t Trace) latest() time.Time {
	if t.Sent.After(t.Admitted) {
		return t.Sent
	}
	return t.Admitted
}

// traceChunk is how many members one command looks up.
const traceChunk = 1000

// Trace returns what Redis knows about the events with this id, the latest first: whether they are in flight,
// or were sent within the dedupe window. An id counts within its category, so there can be one in each, and
// one for each source there. With a category only its events are looked for. It returns none if no event with
// this id is known. Errors are as for Admit.
func (l *Limiter) Trace(ctx context.Context, id, category string) ([]Trace, error) {
	origins, err := l.origins(ctx, category)
	if err != nil {
		return nil, err
	}
	var traces []Trace
	for chunk := range slices.Chunk(origins, traceChunk) {
		found, err := l.traceWithin(ctx, id, chunk)
		if err != nil {
			return nil, err
		}
		traces = append(traces, found...)
	}
	slices.SortStableFunc(traces, func(a, b Trace) int {
		return cmp.Or(b.latest().Compare(a.latest()), cmp.Compare(a.Category, b.Category),
			cmp.Compare(a.Source, b.Source))
	})
	return traces, nil
}

// traceWithin looks the id up in some of the origins.
func (l *Limiter) traceWithin(ctx context.Context, id string, origins []origin) ([]Trace, error) {
	members := make([]string, len(origins))
	for i, o := range origins {
		members[i] = o.member(id)
	}
	pipe := l.redis.Pipeline()
	records := pipe.HMGet(ctx, l.keys.inFlight(), members...)
	sent := pipe.ZMScore(ctx, l.keys.sent(), members...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("redis: cannot look up %q: %w", id, err)
	}
	var traces []Trace
	for i, o := range origins {
		trace := Trace{Category: o.category, Source: o.source, Sent: at(sent.Val()[i])}
		if record, found := records.Val()[i].(string); found {
			inFlight, err := ParseInFlight(record)
			if err != nil {
				return nil, fmt.Errorf("redis: %s: %w", l.keys.inFlight(), err)
			}
			trace.InFlight, trace.Admitted = true, inFlight.Admitted
			trace.Posts, trace.LastPost = inFlight.Posts, inFlight.LastPost
			trace.Failed = inFlight.Posts > 0 && inFlight.LastName == ""
		}
		if trace.known() {
			traces = append(traces, trace)
		}
	}
	return traces, nil
}

// at is the time of a score; a member that is not there has none.
func at(score float64) time.Time {
	if score == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(score)).UTC()
}
