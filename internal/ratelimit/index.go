package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"notifier/internal/pattern"
)

// indexEntry is an entry of the index: a sorted set of the categories that had admissions, and of the sources
// in them. Ids count within their category, so it is what makes an event findable by its id alone. admit.lua
// writes it, and keeps entries for the dedupe window after their category's slots; restore.lua puts it back.
// No category has a space, because no subject has one.
func indexEntry(category, source string) string {
	if source == "" {
		return category
	}
	return category + " " + source
}

// Recent lists the categories that have slots taken, or had until a moment ago, which are those with an
// admission in the longest window of any rule: the one with the latest admission first, from the latest
// entries of the index, at most as many as the argument most. entries is how many there are of these: a
// category has one for its events without a source, and one for each source. Errors are
// as for Admit.
func (l *Limiter) Recent(ctx context.Context, most int) (categories []string, entries int, err error) {
	p := l.plan.Load()
	now, _, err := l.peek(ctx, l.peekedScopes(p, nil))
	if err != nil {
		return nil, 0, err
	}
	since := strconv.FormatInt(now.Add(-p.retention).UnixMicro(), 10)
	pipe := l.redis.Pipeline()
	latest := pipe.ZRevRangeByScore(ctx, l.keys.categories(),
		&redis.ZRangeBy{Min: since, Max: "+inf", Count: int64(most)})
	all := pipe.ZCount(ctx, l.keys.categories(), since, "+inf")
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot list the categories: %w", err)
	}
	known := map[string]bool{}
	for _, entry := range latest.Val() {
		if category, _, _ := strings.Cut(entry, " "); !known[category] {
			known[category] = true
			categories = append(categories, category)
		}
	}
	return categories, int(all.Val()), nil
}

// Configured lists the categories that the settings name, in alphabetical order: those with a limit of their
// own, and those that slots are kept for. A pattern names none.
func (l *Limiter) Configured() []string {
	rules := l.Rules()
	var names []string
	for category := range rules.Overrides.All() {
		if !pattern.HasWildcard(category) {
			names = append(names, category)
		}
	}
	for category := range rules.Reserve {
		names = append(names, category)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mostOrigins bounds how many categories and sources an id is looked for in.
const mostOrigins = 100_000

// origins lists what ids may count within: the latest entries of the index, or of one category's if that is
// not empty. The named category is among them even if the index has lost it.
func (l *Limiter) origins(ctx context.Context, category string) ([]origin, error) {
	entries, err := l.redis.ZRevRange(ctx, l.keys.categories(), 0, mostOrigins-1).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: cannot list the categories: %w", err)
	}
	var origins []origin
	if category != "" {
		origins = append(origins, newOrigin(category, ""))
	}
	for _, entry := range entries {
		of, source, _ := strings.Cut(entry, " ")
		if category == "" || of == category && source != "" {
			origins = append(origins, newOrigin(of, source))
		}
	}
	return origins, nil
}
