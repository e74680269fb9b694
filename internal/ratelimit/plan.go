package ratelimit

import (
	"maps"
	"slices"
	"time"

	"notifier/internal/pattern"
)

// Temporary are limits that replace those of the settings for some time.
type Temporary struct {
	Global     Limit            // empty: that of the settings
	Groups     map[string]Limit // by name, also of groups that have no limit otherwise
	Categories map[string]Limit // by name; they go before every pattern

	Ends Ends
}

// Ends is when temporary limits end; of those that are not in it that is not known.
type Ends map[Scope]time.Time

// Bound bounds a wait for room in a scope by the end of its temporary limit. Then the limit of the settings
// holds again; whether that one has room is not known before, so the wait is a lower bound.
func (e Ends) Bound(of Scope, now time.Time, wait time.Duration, atLeast bool) (time.Duration, bool) {
	if end, temporary := e[of]; temporary {
		if left := max(0, end.Sub(now)); left < wait {
			return left, true
		}
	}
	return wait, atLeast
}

// Scope is what a limit is for: a category, a group or, without a name, everything.
type Scope struct {
	Group    string // empty: it is not a group's
	Category string // empty: it is not a category's; with Group empty too it is the global one
}

// With returns the rules in force while temporary limits are.
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
		r.Overrides = pattern.MustTable(overrides) // the patterns are those of tables
	}
	return r
}

// plan is the rules in force and what follows from them for the scripts. It is immutable.
type plan struct {
	rules    Rules
	standing Rules // the settings'
	ends     Ends

	retention time.Duration // how long an event in flight needs no second decision
	remembers time.Duration // how long an admission can matter at all, or its id or its posts be known
	arguments ruleArguments
	reserved  []string // the categories with a reservation, in alphabetical order
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
		arguments: newRuleArguments(rules),
		reserved:  slices.Sorted(maps.Keys(rules.Reserve)),
	}
}

// keepGlobal, keepGroup and keepCategory are how long the entries of a scope are kept: for the longest window
// that is known for it. A temporary limit with a shorter window must not erase what the standing one counts
// when it is back in force.

func (p *plan) keepGlobal() time.Duration {
	return max(p.rules.Global.longestWindow(), p.standing.Global.longestWindow())
}

func (p *plan) keepGroup(group string) time.Duration {
	return max(p.rules.GroupLimit(group).longestWindow(), p.standing.GroupLimit(group).longestWindow())
}

func (p *plan) keepCategory(category string) time.Duration {
	keep := max(p.rules.LimitFor(category).longestWindow(), p.standing.LimitFor(category).longestWindow())
	if p.rules.Reserve[category] > 0 { // it is also counted in the windows of the global limit
		keep = max(keep, p.keepGlobal())
	}
	return keep
}

// SetTemporary replaces the temporary limits, from the next call on; the zero Temporary ends them all. Each
// limit has to be valid, as ParseLimit returns it.
func (l *Limiter) SetTemporary(limits Temporary) {
	p := newPlan(l.standing, limits, l.dedupe)
	l.journal.keepFor(p.remembers)
	l.plan.Store(p)
}

// Rules are those in force: the settings', with the temporary limits.
func (l *Limiter) Rules() Rules { return l.plan.Load().rules }
