package ratelimit

import (
	"fmt"
	"strings"
	"time"

	"notifier/internal/pattern"
)

// Rules define which limits apply to which category. A category has three levels: its own limit, that of its group if there is
// one, and the global one.
type Rules struct {
	Global         Limit                // over all categories together
	Category       Limit                // for each category that has no override
	Overrides      pattern.Table[Limit] // for each category that matches instead
	Group          Limit                // that all categories of a group share, where the group has no override; empty: none
	GroupOverrides map[string]Limit     // for these groups instead
	Reserve        map[string]int       // slots of the global limit that are kept for a category, by its name
	Pace           Tier                 // posts to one channel, which wait for their turn; the zero Tier: none
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

// MaxExactCost is the highest cost, in slots, where a limit that applies keeps each event.
const MaxExactCost = 1000

// MaxCost returns the highest cost, in slots, at which an event of the category can ever be admitted: no more than any tier that
// applies allows, less what a global tier keeps for other categories, and at most MaxExactCost where one of the limits keeps
// each event.
func (r Rules) MaxCost(category string) int {
	most := MaxCount
	for _, limit := range []Limit{r.Global, r.GroupLimit(GroupOf(category)), r.LimitFor(category)} {
		most = min(most, limit.smallestCount())
		if limit.Exact() {
			most = min(most, MaxExactCost)
		}
	}
	others := r.Reserved() - r.Reserve[category]
	for _, tier := range r.Global {
		if r.Reserves(tier) {
			most = min(most, tier.Count-others)
		}
	}
	return most
}

// Reserved is how many slots of the global limit are kept for categories, together.
func (r Rules) Reserved() int {
	sum := 0
	for _, slots := range r.Reserve {
		sum += slots
	}
	return sum
}

// Reserves reports whether slots are kept in a tier of the global limit: only where it has more than are reserved, so that a
// tier such as 1/5s does not refuse everybody.
func (r Rules) Reserves(global Tier) bool { return len(r.Reserve) > 0 && global.Count > r.Reserved() }

// LongestWindow is the longest window of any rule: how long an admission can matter at all.
func (r Rules) LongestWindow() time.Duration {
	longest := time.Duration(0)
	for _, limit := range r.limits() {
		longest = max(longest, limit.longestWindow())
	}
	return longest
}

// longestExactWindow is the same of those limits that keep each event: how long an id is the name of a slot. 0: none does.
func (r Rules) longestExactWindow() time.Duration {
	longest := time.Duration(0)
	for _, limit := range r.limits() {
		if limit.Exact() {
			longest = max(longest, limit.longestWindow())
		}
	}
	return longest
}

// retention is how long an id in flight is known: as long as a slot can have its name, and otherwise as long as an admission
// matters, but no longer than ids that were sent are known.
func (r Rules) retention(dedupe time.Duration) time.Duration {
	longest := max(r.longestExactWindow(), min(r.LongestWindow(), dedupe))
	if len(r.Reserve) > 0 { // a category's own set is then kept for the longest global window
		longest = max(longest, r.Global.longestWindow())
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

// ParseOverrides parses "errors=20/30m+2/10s,team-a.>=5/1h". An empty text gives no overrides. The error names the
// category or pattern and what was expected.
func ParseOverrides(text string) (pattern.Table[Limit], error) {
	limits, err := parseLimits(text, "CATEGORY=LIMIT such as errors=20/30m", "category")
	if err != nil {
		return pattern.Table[Limit]{}, err
	}
	return pattern.NewTable(limits)
}

// parseLimits parses names with their limits. form and kind complete its errors.
func parseLimits(text, form, kind string) (map[string]Limit, error) {
	limits := map[string]Limit{}
	if strings.TrimSpace(text) == "" {
		return limits, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, limitText, found := strings.Cut(strings.TrimSpace(part), "=")
		name = strings.TrimSpace(name) // no subject has whitespace, so " = " is only formatting
		if !found || name == "" {
			return nil, fmt.Errorf("%q, expected %s", part, form)
		}
		if _, twice := limits[name]; twice {
			return nil, fmt.Errorf("%s is listed twice, expected each %s once", name, kind)
		}
		limit, err := ParseLimit(limitText)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		limits[name] = limit
	}
	return limits, nil
}
