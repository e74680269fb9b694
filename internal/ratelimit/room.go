package ratelimit

import (
	"context"
	"slices"
)

// Room is the global limit as it is for the events of one category: what is kept for others counts as taken.
type Room struct {
	Usages []Usage // of each global tier, whose COUNT is less what is kept
	Kept   []int   // of each global tier: slots that are kept for others
}

// Rooms returns the global limit as it is for each of the categories, in their order, as admit.lua would
// apply it now. Without reserves it is the same for all. The call only reads. Errors are as for Admit.
func (l *Limiter) Rooms(ctx context.Context, categories ...string) ([]Room, error) {
	p := l.plan.Load()
	kept, err := l.keptFor(ctx, p)
	if err != nil {
		return nil, err
	}
	// Categories without a reserve share one scope here; it is asked for first.
	scopes, scopeOf := []peekedScope{{limit: p.lessKept(kept, ""), log: l.keys.global()}}, map[string]int{}
	for _, category := range categories {
		if _, asked := scopeOf[category]; p.rules.Reserve[category] > 0 && !asked {
			scopeOf[category] = len(scopes)
			scopes = append(scopes, peekedScope{limit: p.lessKept(kept, category), log: l.keys.global()})
		}
	}
	_, usages, err := l.peek(ctx, scopes)
	if err != nil {
		return nil, err
	}
	rooms, tiers := make([]Room, len(categories)), len(p.rules.Global)
	for i, category := range categories {
		first := scopeOf[category] * tiers
		rooms[i] = Room{Usages: usages[first : first+tiers], Kept: make([]int, tiers)}
		for t, tier := range p.rules.Global {
			usage := &rooms[i].Usages[t]
			rooms[i].Kept[t] = tier.Count - usage.Tier.Count
			usage.AtLeast = usage.AtLeast || usage.FreeIn > 0 && p.rules.reservesForOthers(tier, category)
		}
	}
	return rooms, nil
}

// lessKept is the global limit less what is kept for others than a category.
func (p *plan) lessKept(kept map[string][]int, category string) Limit {
	limit := slices.Clone(p.rules.Global)
	for reserved, inTier := range kept {
		for t := range limit {
			if reserved != category {
				limit[t].Count -= inTier[t]
			}
		}
	}
	return limit
}

// keptFor is what is kept for each reserved category, in each global tier.
func (l *Limiter) keptFor(ctx context.Context, p *plan) (map[string][]int, error) {
	kept := map[string][]int{}
	for t, tier := range p.rules.Global {
		if !p.rules.Reserves(tier) {
			continue
		}
		reserves, err := l.reservesIn(ctx, p, tier)
		if err != nil {
			return nil, err
		}
		for _, reserve := range reserves {
			if kept[reserve.Category] == nil {
				kept[reserve.Category] = make([]int, len(p.rules.Global))
			}
			kept[reserve.Category][t] = reserve.Kept
		}
	}
	return kept, nil
}
