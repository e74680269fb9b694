package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// indexed remembers which entries of the index this process has written within the last indexGrain, so that a busy notifier
// writes each of them once a second. It never holds more than mostIndexed entries.
type indexed struct {
	mu sync.Mutex
	at map[string]time.Time
}

const mostIndexed = 10_000

// due returns those entries that have to be written now.
func (i *indexed) due(entries map[string]bool, now time.Time) []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	var due []any
	for entry := range entries {
		if at, found := i.at[entry]; !found || now.Sub(at) >= indexGrain {
			due = append(due, entry)
		}
	}
	return due
}

// written records that entries were written at a time.
func (i *indexed) written(entries []any, at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.at == nil || len(i.at)+len(entries) > mostIndexed {
		i.at = make(map[string]time.Time, len(entries))
	}
	for _, entry := range entries {
		i.at[entry.(string)] = at
	}
}

// index writes the categories and sources of what was admitted to the index. It comes after the admission, so that a storm costs
// nothing, and before the caller knows of it: whoever dies in between leaves events that are admitted again, and indexed then.
func (l *Limiter) index(ctx context.Context, q question, decisions []Decision) error {
	var entries map[string]bool
	for i, decision := range decisions {
		if decision.Outcome != Admitted {
			continue
		}
		if entries == nil {
			entries = make(map[string]bool, len(q.scopes))
		}
		o := q.origins.of[i]
		entries[o.category] = true
		if o.source != "" {
			entries[indexEntry(o.category, o.source)] = true
		}
	}
	now := time.Now()
	due := l.indexed.due(entries, now)
	if len(due) == 0 {
		return nil
	}
	keyNames := []string{l.keys.register(), l.keys.inFlight(), l.keys.global(), l.keys.categories()}
	if err := l.tidy.Run(ctx, l.redis, keyNames, append([]any{q.plan.keptInIndex, q.plan.dedupe}, due...)...).Err(); err != nil {
		return fmt.Errorf("redis: cannot record the categories: %w", l.explain(ctx, err, keyNames))
	}
	l.indexed.written(due, now)
	return nil
}
