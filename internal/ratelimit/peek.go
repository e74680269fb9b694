package ratelimit

import (
	"context"
	"fmt"
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
	Damaged  bool          // the category's key is of another type: nothing of it is decided, and Used is the tier's COUNT
}

// Peek returns how full the scopes are, the global one and those of the named categories, tier by tier: the global tiers
// first, then the categories in the order given. It charges, trims and writes nothing. Errors are as for Admit.
func (l *Limiter) Peek(ctx context.Context, categories ...string) ([]Usage, error) {
	_, usages, err := l.peek(ctx, categories...)
	return usages, err
}

// peek is Peek, and also returns the time of the reply, by the clock of decisions.
func (l *Limiter) peek(ctx context.Context, categories ...string) (time.Time, []Usage, error) {
	keyNames := []string{l.keys.global()}
	arguments := appendLimit([]any{l.dedupe}, l.rules.Global)
	usages := scopeUsages(nil, "", l.rules.Global)
	for _, category := range categories {
		limit := l.rules.LimitFor(category)
		keyNames = append(keyNames, l.keys.category(category))
		arguments = appendLimit(arguments, limit)
		usages = scopeUsages(usages, category, limit)
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

func scopeUsages(usages []Usage, category string, limit Limit) []Usage {
	for _, tier := range limit {
		usages = append(usages, Usage{Category: category, Tier: tier})
	}
	return usages
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
		if usages[i].Damaged = used == -1 && wait == 0 && usages[i].Category != ""; usages[i].Damaged {
			used = int64(usages[i].Tier.Count)
		}
		if used < 0 || wait < 0 {
			return now, fmt.Errorf("used %d and wait %d, expected no negative number", used, wait)
		}
		usages[i].Used, usages[i].FreeIn = int(used), span(wait)
	}
	return time.UnixMicro(micros).UTC(), nil
}
