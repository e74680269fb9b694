package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slot is one slot that is taken in the longest window of the global limit.
type Slot struct {
	ID       string    `json:"id"`                 // of its event; a hash for a long one
	Category string    `json:"category,omitempty"` // empty if it is not among those that were asked for, or no longer known
	At       time.Time `json:"at"`                 // when the event was admitted
	Frees    time.Time `json:"frees"`              // when it leaves the window
}

// Slots lists the slots taken in the longest global window, the newest first, at most as many as the argument most. A
// slot's category is looked up among the named ones. The call only reads, in two steps, so a slot that is taken in between
// may be missing. Errors are as for Admit.
func (l *Limiter) Slots(ctx context.Context, most int, categories ...string) ([]Slot, error) {
	window := l.rules.Global.longestWindow()
	now, _, err := l.peek(ctx)
	if err != nil {
		return nil, err
	}
	since := &redis.ZRangeBy{Min: "(" + strconv.FormatInt(now.Add(-window).UnixMicro(), 10), Max: "+inf", Count: int64(most)}
	pipe := l.redis.Pipeline()
	global := pipe.ZRevRangeByScoreWithScores(ctx, l.keys.global(), since)
	held := make([]*redis.StringSliceCmd, len(categories))
	for i, category := range categories {
		held[i] = pipe.ZRevRangeByScore(ctx, l.keys.category(category), since)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("redis: cannot list the slots: %w", err)
	}
	categoryOf := map[string]string{}
	for i, category := range categories {
		for _, id := range held[i].Val() {
			categoryOf[id] = category
		}
	}
	slots := make([]Slot, 0, len(global.Val()))
	for _, entry := range global.Val() {
		id, _ := entry.Member.(string)
		at := time.UnixMicro(int64(entry.Score)).UTC()
		slots = append(slots, Slot{ID: id, Category: categoryOf[id], At: at, Frees: at.Add(window)})
	}
	return slots, nil
}
