package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/term"
)

// Rules assign limits to categories. An event needs room under the limit of its category, under the limit of
// its group if there is one, and under the global limit.
type Rules struct {
	Global         Limit
	Category       Limit                // for each category without an override
	Overrides      pattern.Table[Limit] // by category name or pattern
	Group          Limit                // for each group without an override. Empty means no limit.
	GroupOverrides map[string]Limit     // by group name
	Reserve        map[string]int       // slots of the global limit kept for a category, by its name
	Pace           Tier                 // posts to one channel. The zero Tier means no pace.
}

// GroupOf returns the first token of a category: "team-a" and "team-a.job1" belong to the group "team-a".
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

// GroupLimit returns the limit of one group. It is empty if the group has no limit.
func (r Rules) GroupLimit(group string) Limit {
	if limit, found := r.GroupOverrides[group]; found {
		return limit
	}
	return r.Group
}

// scope identifies a set of events that share a limit.
type scope struct {
	level Verdict // Global, Group or Category; also the verdict if the scope refuses
	name  string  // empty for Global
}

var globalScope = scope{level: Global}

func groupScope(category string) scope { return scope{Group, GroupOf(category)} }

func categoryScope(category string) scope { return scope{Category, category} }

func (r Rules) limitOf(s scope) Limit {
	switch s.level {
	case Group:
		return r.GroupLimit(s.name)
	case Category:
		return r.LimitFor(s.name)
	default:
		return r.Global
	}
}

// LongestWindow returns the longest window of any limit.
func (r Rules) LongestWindow() time.Duration {
	var window time.Duration
	for _, limit := range r.limits() {
		window = max(window, limit.maxWindow())
	}
	return window
}

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

// Reserved returns the sum of all reservations, in slots.
func (r Rules) Reserved() int {
	sum := 0
	for _, slots := range r.Reserve {
		sum += slots
	}
	return sum
}

// reserves reports whether reservations apply to a tier of the global limit. A tier with fewer slots, such as
// 1/5s, would refuse every category without a reservation.
func (r Rules) reserves(global Tier) bool { return len(r.Reserve) > 0 && global.Count > r.Reserved() }

// ReservedTier returns the global tier with the longest window among those with reserved slots, the last one
// on a tie. It returns the zero Tier if no tier has any.
func (r Rules) ReservedTier() Tier {
	var longest Tier
	for _, tier := range r.Global {
		if r.reserves(tier) && tier.Window >= longest.Window {
			longest = tier
		}
	}
	return longest
}

// CheckReserve returns an error unless all reservations are valid: every category with a reservation needs an
// exact limit, and the global tiers with the longest window need more slots than are reserved.
func (r Rules) CheckReserve() error {
	for _, category := range slices.Sorted(maps.Keys(r.Reserve)) {
		if err := r.CheckReserved(category, r.LimitFor(category)); err != nil {
			return err
		}
	}
	for _, tier := range r.Global {
		if len(r.Reserve) > 0 && tier.Window == r.Global.maxWindow() && !r.reserves(tier) {
			return fmt.Errorf(
				"%s reserved, and the global limit %s has %d; expected fewer reserved slots than that",
				term.CountAre(r.Reserved(), "slot"), tier, tier.Count)
		}
	}
	return nil
}

// CheckReserved returns an error if the category has a reservation and limit counts in buckets. It accepts an
// empty limit, because the parser has reported that one.
func (r Rules) CheckReserved(category string, limit Limit) error {
	if r.Reserve[category] == 0 || len(limit) == 0 || limit.exact() {
		return nil
	}
	return fmt.Errorf("slots are reserved for %s, and its limit %s is counted in buckets; "+
		"expected a limit that keeps each event, such as %d/%s",
		category, limit, limit[0].Count, term.ShortDuration(limit[0].Window))
}

// maxExactCost bounds the cost of an event under an exact limit, which stores each slot. A higher cost would
// block Redis for too long.
const maxExactCost = 1000

// MaxCost returns the highest cost, in slots, at which an event of the category can be admitted. Every tier
// bounds it, global tiers without the slots reserved for other categories. Exact limits bound it to 1000.
func (r Rules) MaxCost(category string) int { return r.costBound(category).max }

// CheckCost returns an error unless an event of the category can be admitted at this cost, in slots. The
// error names the bound: "expected 1 to 10, as the limit 10/30m of its category allows".
func (r Rules) CheckCost(category string, cost int) error {
	if bound := r.costBound(category); cost < 1 || cost > bound.max {
		return bound
	}
	return nil
}

// costBound is the error about a cost above max.
type costBound struct {
	max      int
	limit    Limit
	owner    string // completes the name of limit. Empty for the global limit.
	exact    bool   // the bound is maxExactCost
	reserved int    // slots of limit reserved for other categories
}

// costBound returns the lowest bound. On a tie, the category precedes the group, and the group the global
// limit.
func (r Rules) costBound(category string) costBound {
	bound := costBound{max: maxCount + 1}
	lower := func(to costBound) {
		if to.max < bound.max {
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
		lower(costBound{max: of.limit.minCount(), limit: of.limit, owner: of.owner})
		if of.limit.exact() {
			lower(costBound{max: maxExactCost, limit: of.limit, owner: of.owner, exact: true})
		}
	}
	others := r.Reserved() - r.Reserve[category]
	for _, tier := range r.Global {
		if r.reserves(tier) {
			lower(costBound{max: tier.Count - others, limit: r.Global, reserved: others})
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
		return fmt.Sprintf("expected 1 to %d: %s keeps each event, so a cost goes up to %d", b.max, name, b.max)
	case b.reserved > 0:
		return fmt.Sprintf("expected 1 to %d, with %s of %s reserved for other categories", b.max,
			term.Count(b.reserved, "slot"), name)
	default:
		return fmt.Sprintf("expected 1 to %d, as %s allows", b.max, name)
	}
}

// Scope names the target of a temporary limit: a category, a group, or all events if both names are empty.
type Scope struct {
	Group    string
	Category string
}

func (s scope) public() Scope {
	switch s.level {
	case Group:
		return Scope{Group: s.name}
	case Category:
		return Scope{Category: s.name}
	default:
		return Scope{}
	}
}

// Temporary holds limits that replace configured ones until they end.
type Temporary struct {
	Global     Limit            // empty keeps the limit of the settings
	Groups     map[string]Limit // by name
	Categories map[string]Limit // by name; they precede every pattern

	Ends Ends
}

// Ends holds the end of each temporary limit, as far as it is known.
type Ends map[Scope]time.Time

// Bound shortens a wait for room in a scope to the end of its temporary limit. The result is then a lower
// bound, because the limit of the settings may have no room either. If the temporary limit has just ended, it
// is a microsecond: a refusal always has a wait.
func (e Ends) Bound(of Scope, now time.Time, wait time.Duration, atLeast bool) (time.Duration, bool) {
	if end, temporary := e[of]; temporary {
		if left := max(time.Microsecond, end.Sub(now)); left < wait {
			return left, true
		}
	}
	return wait, atLeast
}

// With returns the rules with temporary limits in force.
func (r Rules) With(limits Temporary) Rules {
	if len(limits.Global) > 0 {
		r.Global = limits.Global
	}
	if len(limits.Groups) > 0 {
		groups := map[string]Limit{}
		maps.Copy(groups, r.GroupOverrides)
		maps.Copy(groups, limits.Groups)
		r.GroupOverrides = groups
	}
	if len(limits.Categories) > 0 {
		overrides := maps.Collect(r.Overrides.All())
		maps.Copy(overrides, limits.Categories)
		r.Overrides = pattern.MustTable(overrides) // both tables were valid
	}
	return r
}

// plan holds the rules in force and the values that every call derives from them. It is immutable.
type plan struct {
	rules    Rules
	standing Rules // of the settings, without temporary limits
	ends     Ends

	retention time.Duration // an admission stays in flight for this long without a second decision
	remembers time.Duration // an admission, its id and its posts are known for this long
	encoded   map[string][]any
	reserved  []string // categories with a reservation, sorted
}

func newPlan(standing Rules, limits Temporary, dedupe time.Duration) *plan {
	rules := standing.With(limits)
	retention := max(standing.LongestWindow(), rules.LongestWindow())
	return &plan{
		rules:     rules,
		standing:  standing,
		ends:      limits.Ends,
		retention: retention,
		remembers: max(retention, dedupe),
		encoded:   encodeRules(rules),
		reserved:  slices.Sorted(maps.Keys(rules.Reserve)),
	}
}

// keep returns for how long the entries of a scope are kept. It respects the limit of the settings too: once
// a shorter temporary limit ends, that limit must find the slots of its own window.
func (p *plan) keep(s scope) time.Duration {
	keep := max(p.rules.limitOf(s).maxWindow(), p.standing.limitOf(s).maxWindow())
	if s.level == Category && p.rules.Reserve[s.name] > 0 { // global tiers count the slots of this category
		keep = max(keep, p.keep(globalScope))
	}
	return keep
}

// The parsers of lists below return all errors joined. Each error names the entry and the expected form.

// ParseOverrides parses limits of categories, by name or pattern: "errors=20/30m+2/10s,team-a.>=5/1h". An
// empty text gives an empty table.
func ParseOverrides(text string) (pattern.Table[Limit], error) {
	limits, err := pattern.List[Limit]{
		Form: "CATEGORY=LIMIT such as errors=20/30m+2/10s", Kind: "category", Name: pattern.Check,
		Value: ParseLimit,
	}.Parse(text)
	if err != nil {
		return pattern.Table[Limit]{}, err
	}
	return pattern.NewTable(limits)
}

// ParseGroupLimit parses the limit that applies to each group. An empty text gives an empty Limit.
func ParseGroupLimit(text string) (Limit, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	return ParseLimit(text)
}

// ParseGroupOverrides parses limits of groups, by name: "team-a=40/30m,team-b=20/30m". An empty text gives an
// empty map.
func ParseGroupOverrides(text string) (map[string]Limit, error) {
	return pattern.List[Limit]{
		Form: "GROUP=LIMIT such as team-a=40/30m", Kind: "group", Name: CheckGroup, Value: ParseLimit,
	}.Parse(text)
}

// CheckGroup returns an error unless name can be a group. The error text continues after the name.
func CheckGroup(name string) error {
	if pattern.HasWildcard(name) || strings.Contains(name, ".") {
		return errors.New(
			"is not a group, expected the first token of a category, such as team-a, without dots and wildcards")
	}
	return pattern.Check(name)
}

// ParseReserve parses slots of the global limit, by category: "payments=5,deploys=2", each 1 to 1,000,000. An
// empty text gives an empty map.
func ParseReserve(text string) (map[string]int, error) {
	return pattern.List[int]{
		Form: "CATEGORY=SLOTS such as payments=5", Kind: "category", Name: checkReserved, Value: parseSlots,
	}.Parse(text)
}

func checkReserved(name string) error {
	if pattern.HasWildcard(name) {
		return errors.New(
			"is a pattern, expected the name of one category, such as payments, for which the slots are kept")
	}
	return pattern.Check(name)
}

func parseSlots(text string) (int, error) {
	slots, err := strconv.Atoi(text)
	if err != nil || slots < 1 || slots > maxCount {
		return 0, fmt.Errorf("slots %q, expected a whole number from 1 to %d", text, maxCount)
	}
	return slots, nil
}
