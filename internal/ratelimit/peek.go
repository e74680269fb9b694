package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// Usage is how full one tier of one scope is.
type Usage struct {
	Category string        // empty: the global scope, or that of Group
	Group    string        // the scope that the categories of a group share; empty: another one
	Tier     Tier          // what it allows
	Used     int           // slots taken in the window that ends now
	FreeIn   time.Duration // until an event of cost 1 fits into this tier; 0: now
	Damaged  bool          // a key of the group or category is of another type: nothing of it is decided, and Used is the tier's COUNT
}

// Peek returns how full the scopes are, tier by tier: the global one, then the groups of the named categories that have a limit,
// each once, then those categories in the order given. It charges, trims and writes nothing. Errors are as for Admit.
func (l *Limiter) Peek(ctx context.Context, categories ...string) ([]Usage, error) {
	p := l.plan.Load()
	_, usages, err := l.peek(ctx, l.peeked(p, categories))
	return usages, err
}

// peekedScope is a scope with its name in a Usage.
type peekedScope struct {
	group, category string
	limit           Limit
	key             string        // of its exact form
	skip            time.Duration // in buckets, what ends this long after a window began or earlier is not counted
}

// peeked are the scopes that Peek returns.
func (l *Limiter) peeked(p *plan, categories []string) []peekedScope {
	scopes := []peekedScope{{limit: p.rules.Global, key: l.keys.global()}}
	seen := map[string]bool{}
	for _, category := range categories {
		group := GroupOf(category)
		if limit := p.rules.GroupLimit(group); len(limit) > 0 && !seen[group] {
			scopes = append(scopes, peekedScope{group: group, limit: limit, key: l.keys.group(group)})
			seen[group] = true
		}
	}
	for _, category := range categories {
		scopes = append(scopes, peekedScope{category: category, limit: p.rules.LimitFor(category), key: l.keys.category(category)})
	}
	return scopes
}

// peek looks at scopes, the first of which is the global one, and also returns the time of the reply, by the clock of decisions.
func (l *Limiter) peek(ctx context.Context, scopes []peekedScope) (time.Time, []Usage, error) {
	keyNames := []string{l.keys.register()}
	arguments := []any{l.plan.Load().dedupe}
	var usages []Usage
	for _, s := range scopes {
		keyNames = append(keyNames, l.keys.bothForms(s.key)...)
		arguments = appendTiers(append(arguments, micros(s.skip), strconv.Itoa(len(s.limit))), s.limit)
		for _, tier := range s.limit {
			usages = append(usages, Usage{Group: s.group, Category: s.category, Tier: tier})
		}
	}
	reply, err := redis.NewScript(lua.Peek).Run(ctx, l.redis, keyNames, arguments...).Result()
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("redis: cannot read the usage: %w", l.explain(ctx, err, keyNames))
	}
	now, err := decodeUsages(reply, usages)
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("redis: unexpected reply from peek.lua: %w", err)
	}
	return now, usages, nil
}

// decodeUsages fills in usages from the reply, two numbers for each tier, and returns its time.
func decodeUsages(reply any, usages []Usage) (now time.Time, err error) {
	fields, err := list(reply, "reply", 3)
	if err != nil {
		return now, err
	}
	micros, err := number(fields[0], "now")
	if err != nil {
		return now, err
	}
	numbers, err := list(fields[2], "numbers", 2*len(usages))
	if err != nil {
		return now, err
	}
	for i := range usages {
		used, err := number(numbers[2*i], "used")
		if err != nil {
			return now, err
		}
		wait, err := number(numbers[2*i+1], "wait")
		if err != nil {
			return now, err
		}
		if usages[i].Damaged = used == -1 && wait == 0 && (usages[i].Category != "" || usages[i].Group != ""); usages[i].Damaged {
			used = int64(usages[i].Tier.Count)
		}
		if used < 0 || wait < 0 {
			return now, fmt.Errorf("used %d and wait %d, expected no negative number", used, wait)
		}
		usages[i].Used, usages[i].FreeIn = int(used), span(wait)
	}
	return time.UnixMicro(micros).UTC(), nil
}
