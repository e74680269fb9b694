package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/term"
)

// Rules define which limits apply to which category. A category has three levels: its own limit, that of its
// group if there is one, and the global one.
type Rules struct {
	Global         Limit                // over all categories together
	Category       Limit                // for each category that has no override
	Overrides      pattern.Table[Limit] // for each category that matches instead
	Group          Limit                // shared by all categories of a group without an override; empty: none
	GroupOverrides map[string]Limit     // for these groups instead
	Reserve        map[string]int       // slots of the global limit that are kept for a category, by its name
	Pace           Tier                 // posts to one channel, which wait their turn; the zero Tier: none
}

// GroupOf is the group of a category: its first token. "team-a" and "team-a.job1" are in the group "team-a".
func GroupOf(category string) string {
	group, _, _ := strings.Cut(category, ".")
	return group
}

// LimitFor returns the limit of one category.
func (r Rules) LimitFor(category string) Limit {
	if limit, _, found := r.Overrides.Find(category); found {
		return limit
	}
	return r.Category
}

// GroupLimit returns the limit of one group; empty: it has none.
func (r Rules) GroupLimit(group string) Limit {
	if limit, found := r.GroupOverrides[group]; found {
		return limit
	}
	return r.Group
}

// Reserved is how many slots of the global limit are kept for categories, together.
func (r Rules) Reserved() int {
	sum := 0
	for _, slots := range r.Reserve {
		sum += slots
	}
	return sum
}

// Reserves reports whether slots are kept in a tier of the global limit: only where it has more than are
// reserved, so that a tier such as 1/5s does not refuse everybody.
func (r Rules) Reserves(global Tier) bool { return len(r.Reserve) > 0 && global.Count > r.Reserved() }

// ReservedTier is the longest tier of the global limit in which slots are kept, of two the one that is listed
// last; the zero Tier: there is none.
func (r Rules) ReservedTier() Tier {
	var longest Tier
	for _, tier := range r.Global {
		if r.Reserves(tier) && tier.Window >= longest.Window {
			longest = tier
		}
	}
	return longest
}

// CheckReserve returns what is wrong with what is reserved, or nil: the limit of a category with a
// reservation must keep each event, and the global tiers with the longest window must have more slots than
// are reserved. Shorter ones need not, see Reserves.
func (r Rules) CheckReserve() error {
	for _, category := range slices.Sorted(maps.Keys(r.Reserve)) {
		if err := r.CheckReserved(category, r.LimitFor(category)); err != nil {
			return err
		}
	}
	for _, tier := range r.Global {
		if len(r.Reserve) > 0 && tier.Window == r.Global.longestWindow() && !r.Reserves(tier) {
			return fmt.Errorf(
				"%s reserved, and the global limit %s has %d; expected fewer reserved slots than that",
				term.CountAre(r.Reserved(), "slot"), tier, tier.Count)
		}
	}
	return nil
}

// CheckReserved returns what is wrong with a limit of a category, or nil: with a reservation it must keep
// each event. Nothing is wrong with a limit that could not be read, which is reported as such.
func (r Rules) CheckReserved(category string, limit Limit) error {
	if r.Reserve[category] == 0 || len(limit) == 0 || limit.Exact() {
		return nil
	}
	return fmt.Errorf("slots are reserved for %s, and its limit %s is counted in buckets; "+
		"expected a limit that keeps each event, such as %d/%s",
		category, limit, limit[0].Count, term.ShortDuration(limit[0].Window))
}

// LongestWindow is the longest window of any rule: how long an admission can matter at all.
func (r Rules) LongestWindow() time.Duration {
	longest := time.Duration(0)
	for _, limit := range r.limits() {
		longest = max(longest, limit.longestWindow())
	}
	return longest
}

// limits are all of them.
func (r Rules) limits() []Limit {
	limits := []Limit{r.Global, r.Category}
	for _, limit := range r.Overrides.All() {
		limits = append(limits, limit)
	}
	if len(r.Group) > 0 {
		limits = append(limits, r.Group)
	}
	for _, limit := range r.GroupOverrides {
		limits = append(limits, limit)
	}
	return limits
}
