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
	p := l.plan.Load()
	if len(p.reserved) == 0 {
		return nil, nil
	}
	return l.reservesIn(ctx, p, p.rules.ReservedTier())
}

// reservesIn is Reserves for one of the global tiers with reserves.
func (l *Limiter) reservesIn(ctx context.Context, p *plan, tier Tier) ([]Reserve, error) {
	scopes := []peekedScope{{limit: p.rules.Global, key: l.keys.global()}}
	for _, category := range p.reserved {
		scope := peekedScope{category: category, limit: Limit{tier}, key: l.keys.category(category)}
		if grains := p.stored.LimitFor(category).grains(); len(grains) > 0 {
			scope.skip = slices.Min(grains) - time.Microsecond
		}
		scopes = append(scopes, scope)
	}
	_, usages, err := l.peek(ctx, scopes)
	if err != nil {
		return nil, err
	}
	reserves := make([]Reserve, len(p.reserved))
	for i, category := range p.reserved {
		slots, usage := p.rules.Reserve[category], usages[len(p.rules.Global)+i]
		if usage.Damaged { // nothing of it can be counted
			usage.Used = 0
		}
		reserves[i] = Reserve{Category: category, Tier: tier, Slots: slots, Used: usage.Used, Kept: max(0, slots-usage.Used)}
	}
	return reserves, nil
}
