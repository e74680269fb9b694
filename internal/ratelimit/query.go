package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/pattern"
)

// Usage is the state of one tier of one scope.
type Usage struct {
	Category string // empty for a group and for the global scope
	Group    string // empty for a category and for the global scope
	Tier     Tier
	Used     int           // slots taken in the current window
	FreeIn   time.Duration // until an event of cost 1 fits into this tier. Zero means now.
	AtLeast  bool          // FreeIn is a lower bound
}

// Peek returns the usage of every tier of the global scope, then of the named categories' groups that have a
// limit, each once, then of the categories in the given order. It writes nothing. Errors are as for Admit.
func (l *Limiter) Peek(ctx context.Context, categories ...string) ([]Usage, error) {
	_, usages, err := l.peek(ctx, l.plan.Load().rules, categories)
	return usages, err
}

// peek also returns the time by the clock of decisions.
func (l *Limiter) peek(ctx context.Context, rules Rules, categories []string) (time.Time, []Usage, error) {
	scopes := []scope{globalScope}
	for _, category := range categories {
		group := groupScope(category)
		if len(rules.limitOf(group)) > 0 && !slices.Contains(scopes, group) {
			scopes = append(scopes, group)
		}
	}
	for _, category := range categories {
		scopes = append(scopes, categoryScope(category))
	}
	var usages []Usage
	for _, s := range scopes {
		named := s.public()
		for _, tier := range rules.limitOf(s) {
			usages = append(usages, Usage{Group: named.Group, Category: named.Category, Tier: tier})
		}
	}
	now, err := run(ctx, l, l.redis, l.peekCall(rules, scopes), func(reply any) (time.Time, error) {
		return decodeUsages(reply, usages)
	})
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("redis: cannot read the usage: %w", err)
	}
	return now, usages, nil
}

// Recent returns the categories with an admission within the longest window of any limit, the latest first.
// It reads up to limit entries of the index, which has one for each source of a category and one for its
// events without a source. Recent also returns the total of recent entries. Errors are as for Admit.
func (l *Limiter) Recent(ctx context.Context, limit int) (categories []string, entries int, err error) {
	p := l.plan.Load()
	now, _, err := l.peek(ctx, p.rules, nil)
	if err != nil {
		return nil, 0, err
	}
	since := strconv.FormatInt(now.Add(-p.retention).UnixMicro(), 10)
	pipe := l.redis.Pipeline()
	latest := pipe.ZRevRangeByScore(ctx, l.keys.categories(),
		&redis.ZRangeBy{Min: since, Max: "+inf", Count: int64(limit)})
	all := pipe.ZCount(ctx, l.keys.categories(), since, "+inf")
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("redis: cannot list the categories: %w", err)
	}
	known := map[string]bool{}
	for _, entry := range latest.Val() {
		if category, _ := parseIndexEntry(entry); !known[category] {
			known[category] = true
			categories = append(categories, category)
		}
	}
	return categories, int(all.Val()), nil
}

// Configured returns the categories with a limit or a reservation of their own, sorted. Patterns are not
// categories.
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

// InFlight is the record of an admitted event that is neither sent nor refunded. Times are UTC, in
// microseconds by the clock of Redis.
type InFlight struct {
	Admitted time.Time
	Delivery string    // the stream message for which the event was admitted
	Posts    int       // begun posts
	LastPost time.Time // start of the last one. Zero before the first.
	LastName string    // name of the last one. Empty before the first, or if all certainly failed.
}

// InFlight returns the record of an event, and whether the event is in flight. Errors are as for Admit and
// ParseInFlight.
func (l *Limiter) InFlight(ctx context.Context, request Request) (record InFlight, found bool, err error) {
	text, err := l.redis.HGet(ctx, l.keys.inFlight(), request.member()).Result()
	if errors.Is(err, redis.Nil) {
		return InFlight{}, false, nil
	}
	if err == nil {
		record, err = ParseInFlight(text)
	}
	if err != nil {
		return InFlight{}, false, fmt.Errorf("redis: cannot look up %q in flight: %w", request.ID, err)
	}
	return record, true, nil
}

// WasSent reports whether an event was sent. It is certain for the dedupe window only. Errors are as for
// Admit.
func (l *Limiter) WasSent(ctx context.Context, request Request) (bool, error) {
	err := l.redis.ZScore(ctx, l.keys.sent(), request.member()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("redis: cannot look up whether %q was sent: %w", request.ID, err)
	}
	return err == nil, nil
}

// inFlightShape matches a record; see admit.lua.
var inFlightShape = regexp.MustCompile(`(?s)^(\d{1,18})g?:(\d{1,9}):(\d{1,18}):(\S*) (.*)$`)

// ParseInFlight parses a record as the scripts write it. Any other text is an error.
func ParseInFlight(record string) (InFlight, error) {
	parts := inFlightShape.FindStringSubmatch(record)
	if parts == nil {
		return InFlight{}, fmt.Errorf("record %.60q, expected a time, posts and a stream message", record)
	}
	parsed := InFlight{Admitted: microTime(parts[1]), LastName: parts[4], Delivery: parts[5]}
	if parts[2] != "0" {
		parsed.Posts, _ = strconv.Atoi(parts[2]) // the pattern bounds the digits
		parsed.LastPost = microTime(parts[3])
	}
	return parsed, nil
}

func microTime(digits string) time.Time {
	micros, _ := strconv.ParseInt(digits, 10, 64) // the pattern bounds the digits
	return time.UnixMicro(micros).UTC()
}

// Trace is the state of one event in Redis. Unknown times are zero. Admitted, Posts, LastPost and Failed
// describe an event in flight only.
type Trace struct {
	Category string
	Source   string // or a hash of a long one. Empty if the event has no source.
	Admitted time.Time
	InFlight bool      // admitted, and neither sent nor refunded
	Posts    int       // begun posts
	LastPost time.Time // start of the last one
	Failed   bool      // posts have begun, and all of them certainly failed
	Sent     time.Time // time at which the event was recorded as sent
}

func (t Trace) latest() time.Time {
	if t.Sent.After(t.Admitted) {
		return t.Sent
	}
	return t.Admitted
}

const (
	maxOrigins = 100_000 // searched for an id
	traceChunk = 1000    // members of one command
)

// Trace returns the events with this id that are in flight or were sent within the dedupe window, and some
// that were sent earlier, the latest first. Ids are unique within a category and source only, so there can be
// several. Refused events leave no trace. Trace searches the latest 100,000 pairs of category and source.
// Errors are as for Admit.
func (l *Limiter) Trace(ctx context.Context, id string) ([]Trace, error) {
	entries, err := l.redis.ZRevRange(ctx, l.keys.categories(), 0, maxOrigins-1).Result()
	if err != nil {
		return nil, fmt.Errorf("redis: cannot list the categories: %w", err)
	}
	var traces []Trace
	for chunk := range slices.Chunk(entries, traceChunk) {
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

// traceWithin looks up an id in the origins of some entries of the index.
func (l *Limiter) traceWithin(ctx context.Context, id string, entries []string) ([]Trace, error) {
	members := make([]string, len(entries))
	for i, entry := range entries {
		members[i] = newOrigin(parseIndexEntry(entry)).member(id)
	}
	pipe := l.redis.Pipeline()
	records := pipe.HMGet(ctx, l.keys.inFlight(), members...)
	sent := pipe.ZMScore(ctx, l.keys.sent(), members...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("redis: cannot look up %q: %w", id, err)
	}
	var traces []Trace
	for i, entry := range entries {
		var trace Trace
		trace.Category, trace.Source = parseIndexEntry(entry)
		if score := sent.Val()[i]; score != 0 {
			trace.Sent = time.UnixMicro(int64(score)).UTC()
		}
		if record, found := records.Val()[i].(string); found {
			inFlight, err := ParseInFlight(record)
			if err != nil {
				return nil, fmt.Errorf("redis: %s: %w", l.keys.inFlight(), err)
			}
			trace.InFlight, trace.Admitted = true, inFlight.Admitted
			trace.Posts, trace.LastPost = inFlight.Posts, inFlight.LastPost
			trace.Failed = inFlight.Posts > 0 && inFlight.LastName == ""
		}
		if !trace.latest().IsZero() {
			traces = append(traces, trace)
		}
	}
	return traces, nil
}
