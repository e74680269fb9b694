package ratelimit

import (
	"context"
)

// Reserve is what is kept of the global limit for one category.
type Reserve struct {
	Category string `json:"category"`
	Tier     Tier   `json:"-"`     // the longest global tier with reserves, for which Used and Kept are
	Slots    int    `json:"slots"` // reserved for it
	Used     int    `json:"used"`  // that it has taken
	Kept     int    `json:"kept"`  // that nobody else can take now: Slots less Used, or 0
}

// Reserves returns what is kept for whom, as admit.lua would keep it now, in alphabetical order; none without
// reserves. Errors are as for Admit.
func (l *Limiter) Reserves(ctx context.Context) ([]Reserve, error) {
	p := l.plan.Load()
	tier := p.rules.ReservedTier()
	if tier == (Tier{}) {
		return nil, nil
	}
	return l.reservesIn(ctx, p, tier)
}

// reservesIn is Reserves for one of the global tiers with reserves.
func (l *Limiter) reservesIn(ctx context.Context, p *plan, tier Tier) ([]Reserve, error) {
	var scopes []peekedScope
	for _, category := range p.reserved {
		scopes = append(scopes,
			peekedScope{category: category, limit: Limit{tier}, log: l.keys.category(category)})
	}
	_, usages, err := l.peek(ctx, scopes)
	if err != nil {
		return nil, err
	}
	reserves := make([]Reserve, len(p.reserved))
	for i, category := range p.reserved {
		slots, usage := p.rules.Reserve[category], usages[i]
		reserves[i] = Reserve{Category: category, Tier: tier, Slots: slots, Used: usage.Used,
			Kept: max(0, slots-usage.Used)}
	}
	return reserves, nil
}
