package ratelimit

import (
	"fmt"

	"notifier/internal/term"
)

// MaxExactCost is the highest cost, in slots, where a limit that applies keeps each event.
const MaxExactCost = 1000

// MaxCost returns the highest cost, in slots, at which an event of the category can ever be admitted: no more
// than any tier that applies allows, less what a global tier keeps for other categories, and at most
// MaxExactCost where one of the limits keeps each event.
func (r Rules) MaxCost(category string) int { return r.costBound(category).most }

// CheckCost returns nil if an event of the category can be admitted at this cost, in slots. Else the error is
// what was expected and which bound applies: "expected 1 to 10, the limit 10/30m of its category".
func (r Rules) CheckCost(category string, cost int) error {
	if bound := r.costBound(category); cost < 1 || cost > bound.most {
		return bound
	}
	return nil
}

// costBound is what bounds a cost. It is an error about one above it.
type costBound struct {
	most     int
	limit    Limit
	owner    string // whose limit it is; empty: the global one
	exact    bool   // not the limit's count, but that it keeps each event
	reserved int    // slots of the limit that are reserved for other categories
}

// costBound returns the lowest bound; of several alike that of the category goes before that of the group.
func (r Rules) costBound(category string) costBound {
	bound := costBound{most: MaxCount + 1}
	lower := func(to costBound) {
		if to.most < bound.most {
			bound = to
		}
	}
	for _, of := range []struct {
		limit Limit
		owner string
	}{
		{r.LimitFor(category), " of its category"},
		{r.GroupLimit(GroupOf(category)), " of its group"},
		{r.Global, ""},
	} {
		lower(costBound{most: of.limit.smallestCount(), limit: of.limit, owner: of.owner})
		if of.limit.Exact() {
			lower(costBound{most: MaxExactCost, limit: of.limit, owner: of.owner, exact: true})
		}
	}
	others := r.Reserved() - r.Reserve[category]
	for _, tier := range r.Global {
		if r.Reserves(tier) {
			lower(costBound{most: tier.Count - others, limit: r.Global, reserved: others})
		}
	}
	return bound
}

func (b costBound) Error() string {
	name := "the limit " + b.limit.String() + b.owner
	if b.owner == "" {
		name = "the global limit " + b.limit.String()
	}
	switch {
	case b.exact:
		return fmt.Sprintf("expected 1 to %d: %s keeps each event, so a cost goes up to %d", b.most, name,
			b.most)
	case b.reserved > 0:
		return fmt.Sprintf("expected 1 to %d, with %s of %s reserved for other categories", b.most,
			term.Count(b.reserved, "slot"), name)
	default:
		return fmt.Sprintf("expected 1 to %d, as %s allows", b.most, name)
	}
}
