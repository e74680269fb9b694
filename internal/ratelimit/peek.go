package ratelimit

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Usage is how full one tier of one scope is.
type Usage struct {
	Category string        // empty: the global scope, or that of Group
	Group    string        // the scope that the categories of a group share; empty: another one
	Tier     Tier          // what it allows
	Used     int           // slots taken in the window that ends now
	FreeIn   time.Duration // until an event of cost 1 fits into this tier; 0: now
	AtLeast  bool          // FreeIn is a lower bound
}

// Peek returns how full the scopes are, tier by tier: the global one, then the groups of the named categories
// that have a limit, each once, then those categories in the order given. It charges, trims and writes
// nothing. Errors are as for Admit.
func (l *Limiter) Peek(ctx context.Context, categories ...string) ([]Usage, error) {
	p := l.plan.Load()
	_, usages, err := l.peek(ctx, l.peekedScopes(p, categories))
	return usages, err
}

// peekedScope is a scope with its name in a Usage.
type peekedScope struct {
	group, category string
	limit           Limit
	log             string // the first of its keys
}

// peekedScopes are the scopes that Peek returns.
func (l *Limiter) peekedScopes(p *plan, categories []string) []peekedScope {
	scopes := []peekedScope{{limit: p.rules.Global, log: l.keys.global()}}
	seen := map[string]bool{}
	for _, category := range categories {
		group := GroupOf(category)
		if limit := p.rules.GroupLimit(group); len(limit) > 0 && !seen[group] {
			scopes = append(scopes, peekedScope{group: group, limit: limit, log: l.keys.group(group)})
			seen[group] = true
		}
	}
	for _, category := range categories {
		scopes = append(scopes,
			peekedScope{category: category, limit: p.rules.LimitFor(category),
				log: l.keys.category(category)})
	}
	return scopes
}

// peek looks at scopes, and also returns the time of the reply, by the clock of decisions.
func (l *Limiter) peek(ctx context.Context, scopes []peekedScope) (time.Time, []Usage, error) {
	keyNames := []string{l.keys.meta()}
	var arguments []any
	var usages []Usage
	for _, s := range scopes {
		keyNames = append(keyNames, l.keys.bothForms(s.log)...)
		arguments = appendTiers(append(arguments, strconv.Itoa(len(s.limit))), s.limit)
		for _, tier := range s.limit {
			usages = append(usages, Usage{Group: s.group, Category: s.category, Tier: tier})
		}
	}
	reply, err := l.peeked.Run(ctx, l.redis, keyNames, arguments...).Result()
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("redis: cannot read the usage: %w", l.explain(ctx, err, keyNames))
	}
	now, err := decodeUsages(reply, usages)
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("redis: unexpected reply from peek.lua: %w", err)
	}
	return now, usages, nil
}

// decodeUsages fills in usages from the reply, three numbers for each tier, and returns its time.
func decodeUsages(reply any, usages []Usage) (now time.Time, err error) {
	fields, err := list(reply, "reply", 2)
	if err != nil {
		return now, err
	}
	micros, err := number(fields[0], "now")
	if err != nil {
		return now, err
	}
	numbers, err := list(fields[1], "numbers", 3*len(usages))
	if err != nil {
		return now, err
	}
	for i := range usages {
		var row [3]int64
		for j, name := range []string{"used", "wait", "lower bound"} {
			if row[j], err = number(numbers[3*i+j], name); err != nil {
				return now, err
			}
		}
		if row[0] < 0 || row[1] < 0 {
			return now, fmt.Errorf("used %d and wait %d, expected no negative number", row[0], row[1])
		}
		usages[i].Used, usages[i].FreeIn, usages[i].AtLeast = int(row[0]), span(row[1]), row[2] == 1
	}
	return time.UnixMicro(micros).UTC(), nil
}
