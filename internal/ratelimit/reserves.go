package ratelimit

import "context"

// Reserve is what is kept of the global limit for one category.
type Reserve struct {
	Category string `json:"category"`
	Slots    int    `json:"slots"` // reserved for it
	Used     int    `json:"used"`  // that it has taken in the longest global tier
	Kept     int    `json:"kept"`  // that nobody else can take now: Slots less Used, or 0
}

// Reserves returns what is kept for whom, in alphabetical order; none without reserves. Errors are as for Admit.
func (l *Limiter) Reserves(ctx context.Context) ([]Reserve, error) {
	if len(l.reserved) == 0 {
		return nil, nil
	}
	var longest Tier
	for _, tier := range l.rules.Global {
		if l.rules.Reserves(tier) && tier.Window >= longest.Window {
			longest = tier
		}
	}
	scopes := []peekedScope{{limit: l.rules.Global, key: l.keys.global()}}
	for _, category := range l.reserved {
		scopes = append(scopes, peekedScope{category: category, limit: Limit{longest}, key: l.keys.category(category)})
	}
	_, usages, err := l.peek(ctx, scopes)
	if err != nil {
		return nil, err
	}
	reserves := make([]Reserve, len(l.reserved))
	for i, category := range l.reserved {
		slots, used := l.rules.Reserve[category], usages[len(l.rules.Global)+i].Used
		reserves[i] = Reserve{Category: category, Slots: slots, Used: used, Kept: max(0, slots-used)}
	}
	return reserves, nil
}
