package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Slot is one slot that is taken in the longest window of the global limit.
type Slot struct {
	ID       string    `json:"id"`                 // of its event; a hash after "~" for a long one
	Category string    `json:"category,omitempty"` // empty if ID is a hash of none of the given categories
	At       time.Time `json:"at"`                 // when the event was admitted
	Frees    time.Time `json:"frees"`              // when it leaves the window
}

// Slots lists the slots taken in the longest global window, the newest first, at most as many as the argument
// most. The category of a slot whose ID is a hash is looked up among the named ones. The call only reads, in
// a few steps, so a slot that is taken in between may be missing. Errors are as for Admit.
func (l *Limiter) Slots(ctx context.Context, most int, categories ...string) ([]Slot, error) {
	p := l.plan.Load()
	window := p.rules.Global.longestWindow()
	now, _, err := l.peek(ctx, l.peekedScopes(p, nil))
	if err != nil {
		return nil, err
	}
	since := &redis.ZRangeBy{Min: "(" + strconv.FormatInt(now.Add(-window).UnixMicro(), 10), Max: "+inf",
		Count: int64(most)}
	taken, err := l.redis.ZRevRangeByScoreWithScores(ctx, l.keys.global(), since).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: cannot list the slots: %w", err)
	}
	slots := make([]Slot, len(taken))
	hashed := false
	for i, entry := range taken {
		name, _ := entry.Member.(string)
		member, _, _ := strings.Cut(name, " ")
		at := time.UnixMicro(int64(entry.Score)).UTC()
		slots[i] = Slot{ID: member, At: at, Frees: at.Add(window)}
		if category, id, plain := readMember(member); plain {
			slots[i].Category, slots[i].ID = category, id
		} else {
			hashed = true
		}
	}
	if !hashed {
		return slots, nil
	}
	// An event has the same time in both sets, so what is older than the oldest slot here is not needed.
	since.Min = strconv.FormatInt(int64(taken[len(taken)-1].Score), 10)
	categoryOf, err := l.holders(ctx, since, categories)
	if err != nil {
		return nil, fmt.Errorf("redis: cannot list the slots: %w", err)
	}
	for i, slot := range slots {
		if slot.Category == "" {
			slots[i].Category = categoryOf[slot.ID]
		}
	}
	return slots, nil
}

// holders are the categories by the members in them, for members that do not show theirs.
func (l *Limiter) holders(
	ctx context.Context, since *redis.ZRangeBy, categories []string,
) (map[string]string, error) {
	pipe := l.redis.Pipeline()
	held := make([]*redis.StringSliceCmd, len(categories))
	for i, category := range categories {
		held[i] = pipe.ZRevRangeByScore(ctx, l.keys.category(category), since)
	}
	// A key of another type holds nothing.
	if _, err := pipe.Exec(ctx); err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
		return nil, err
	}
	categoryOf := map[string]string{}
	for i, category := range categories {
		for _, name := range held[i].Val() {
			member, _, _ := strings.Cut(name, " ")
			categoryOf[member] = category
		}
	}
	return categoryOf, nil
}
