package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// A pace is kept in one sorted set per channel, under the name that the settings have for it: a channel that
// some events name by its ID and others by its name is paced twice. Slots are recorded with a pace of "off",
// too, because other replicas may count them. begin.lua and answered.lua are the contract.

// Bounds of a pace.
const (
	MaxPaceCount  = 1000
	MinPaceWindow = 100 * time.Millisecond
	MaxPaceWindow = time.Hour
)

var paceBounds = tierBounds{
	count: MaxPaceCount, shortest: MinPaceWindow, longest: MaxPaceWindow,
	form: "COUNT/DURATION such as 10/10s, or off", windows: "100ms to 1h in h, m, s or ms, such as 10s",
}

// ParsePace parses "COUNT/DURATION": so many posts to one channel in each rolling window, over all replicas;
// COUNT 1 to MaxPaceCount, DURATION MinPaceWindow to MaxPaceWindow. "off" is none, the zero Tier. The error
// names the invalid part and what was expected.
func ParsePace(text string) (Tier, error) {
	if text == "off" {
		return Tier{}, nil
	}
	if strings.Contains(text, ":") {
		return Tier{}, fmt.Errorf("%q, expected %s, without the PRECISION or fixed of a limit", text,
			paceBounds.form)
	}
	return parseTier(text, paceBounds)
}

// Turn returns how long it takes until the pace lets the next post to a channel begin, as begin.lua would
// say; 0: now. The channel is named as in Post. Errors are as for Admit.
func (l *Limiter) Turn(ctx context.Context, channel string, pace Tier) (time.Duration, error) {
	if pace.Count == 0 {
		return 0, nil
	}
	pipe := l.redis.Pipeline()
	now := pipe.Time(ctx)
	key, nth := l.keys.pace(cmp.Or(channel, webhookChannel)), int64(pace.Count-1)
	slots := pipe.ZRevRangeWithScores(ctx, key, nth, nth)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("redis: cannot read the pace of %q: %w", channel, err)
	}
	if len(slots.Val()) == 0 {
		return 0, nil
	}
	free := time.UnixMicro(int64(slots.Val()[0].Score)).Add(pace.Window)
	return min(max(0, free.Sub(now.Val())), pace.Window), nil
}
