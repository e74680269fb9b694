package ratelimit

import (
	"context"
	"slices"
	"time"
)

// Reserve is what is kept of the global limit for one category.
type Reserve struct {
	Category string `json:"category"`
	Tier     Tier   `json:"-"`     // the longest global tier with reserves, for which Used and Kept are
	Slots    int    `json:"slots"` // reserved for it
	Used     int    `json:"used"`  // that it has taken; of its buckets those that have certainly begun in the window
	Kept     int    `json:"kept"`  // that nobody else can take now: Slots less Used, or 0
}

// Reserves returns what is kept for whom, as admit.lua would keep it now, in alphabetical order; none without reserves. Errors are
// as for Admit.
func (l *Limiter) Reserves(ctx context.Context) ([]Reserve, error) {
	if len(l.reserved) == 0 {
		return nil, nil
	}
	return l.reservesIn(ctx, l.rules.ReservedTier())
}

// reservesIn is Reserves for one of the global tiers with reserves.
func (l *Limiter) reservesIn(ctx context.Context, tier Tier) ([]Reserve, error) {
	scopes := []peekedScope{{limit: l.rules.Global, key: l.keys.global()}}
	for _, category := range l.reserved {
		scope := peekedScope{category: category, limit: Limit{tier}, key: l.keys.category(category)}
		if grains := l.rules.LimitFor(category).grains(); len(grains) > 0 {
			scope.skip = slices.Min(grains) - time.Microsecond
		}
		scopes = append(scopes, scope)
	}
	_, usages, err := l.peek(ctx, scopes)
	if err != nil {
		return nil, err
	}
	reserves := make([]Reserve, len(l.reserved))
	for i, category := range l.reserved {
		slots, usage := l.rules.Reserve[category], usages[len(l.rules.Global)+i]
		if usage.Damaged { // nothing of it can be counted
			usage.Used = 0
		}
		reserves[i] = Reserve{Category: category, Tier: tier, Slots: slots, Used: usage.Used, Kept: max(0, slots-usage.Used)}
	}
	return reserves, nil
}
