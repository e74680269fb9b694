package ratelimit

import (
	"maps"
	"slices"
	"time"

	"notifier/internal/pattern"
)

// Temporary are limits that hold instead of those of the settings for a while.
type Temporary struct {
	Global     Limit            // empty: that of the settings
	Groups     map[string]Limit // by name, also of groups that have no limit otherwise
	Categories map[string]Limit // by name; they go before every pattern
}

// plan is the rules and all that follows from them. It is immutable.
type plan struct {
	rules  Rules // in force: what refuses, and what is shown
	stored Rules // the same as the scripts are given them, see replaced

	dedupe      string        // microseconds, as the scripts take it
	retain      string        // the same: how long an id in flight is known
	keptInIndex string        // the same: how long an entry of the index is kept
	retention   int64         // microseconds: how long an id in flight is known
	remembers   time.Duration // how long an admission can matter at all, and its id be known

	arguments ruleArguments // of stored
	reserved  []string      // the categories for which slots are kept, in alphabetical order
}

func newPlan(rules, stored Rules, dedupe time.Duration) *plan {
	retention := stored.retention(dedupe)
	dedupe = max(dedupe, stored.LongestExactWindow())
	return &plan{
		rules: rules, stored: stored,
		dedupe:    micros(dedupe),
		retain:    micros(retention),
		retention: retention.Microseconds(),
		arguments: newRuleArguments(stored),
		reserved:  slices.Sorted(maps.Keys(rules.Reserve)),
		// An id may be recorded as sent for as long as it is in flight, and is known for the dedupe window from then on.
		keptInIndex: micros(dedupe + retention + indexGrain),
		remembers:   max(stored.LongestWindow(), dedupe, retention),
	}
}

// SetTemporary replaces the limits for a while, from the next call on; the zero Temporary: the rules of the settings hold again.
// Each limit has to be valid, as ParseLimit returns it.
func (l *Limiter) SetTemporary(limits Temporary) {
	rules, stored := l.standing.with(limits)
	p := newPlan(rules, stored, l.asked)
	l.journal.keepFor(p.remembers)
	l.plan.Store(p)
}

// Rules are those in force: the settings', with the limits for a while.
func (l *Limiter) Rules() Rules { return l.plan.Load().rules }

// With returns the rules in force while limits hold for a while.
func (r Rules) With(limits Temporary) Rules {
	rules, _ := r.with(limits)
	return rules
}

// with returns the rules with other limits for a while, as they are in force and as they are stored.
func (r Rules) with(limits Temporary) (rules, stored Rules) {
	rules, stored = r, r
	if len(limits.Global) > 0 {
		rules.Global, stored.Global = replaced(r.Global, limits.Global, r.Global)
	}
	rules.GroupOverrides, stored.GroupOverrides = maps.Clone(r.GroupOverrides), maps.Clone(r.GroupOverrides)
	for group, limit := range limits.Groups {
		if rules.GroupOverrides == nil {
			rules.GroupOverrides, stored.GroupOverrides = map[string]Limit{}, map[string]Limit{}
		}
		rules.GroupOverrides[group], stored.GroupOverrides[group] = replaced(r.GroupLimit(group), limit, r.Global)
	}
	if len(limits.Categories) > 0 {
		shown, kept := maps.Collect(r.Overrides.All()), maps.Collect(r.Overrides.All())
		for category, limit := range limits.Categories {
			shown[category], kept[category] = replaced(r.LimitFor(category), limit, r.Global)
		}
		rules.Overrides, stored.Overrides = pattern.MustTable(shown), pattern.MustTable(kept) // the patterns are those of tables
	}
	return rules, stored
}

// beyond is the COUNT of a tier that never refuses. It is far above every cost and every COUNT.
const beyond = 1 << 40

// replaced returns the limit that holds for a while instead of the standing one, and the same as it is stored.
//
// The scope keeps its form: to copy a million slots from one form into the other, and back after an hour, would stop Redis for
// seconds, and an event of high cost must not become as many members of an exact scope. So where the standing limit is counted in
// buckets, the other one is too; where it keeps each event, the other one does. A group without a standing limit has the form of
// the global one: a high cost is allowed only where that is counted in buckets.
//
// As stored it has a tier more, which never refuses, with the standing limit's window: what is admitted meanwhile has to count
// in that window when the standing limit holds again.
func replaced(standing, instead, global Limit) (inForce, stored Limit) {
	form, window := standing, standing.longestWindow()
	if len(standing) == 0 {
		form, window = global, instead.longestWindow()
	}
	inForce = inFormOf(form, instead)
	kept := Tier{Count: beyond, Window: window}
	if !form.Exact() {
		kept.Precision = min(window, slices.Min(form.grains()))
	}
	return inForce, append(slices.Clone(inForce), kept)
}

// inFormOf returns the limit in the form in which another one is stored: each event, or buckets.
func inFormOf(other, limit Limit) Limit {
	limit = slices.Clone(limit)
	for i, tier := range limit {
		if other.Exact() {
			limit[i].Precision = 0
		} else if tier.grain() == 0 {
			limit[i].Precision = coarse(tier.Window, other)
		}
	}
	return limit
}

// partsOfWindow is into how many buckets a window is divided where the standing limit does not say that.
const partsOfWindow = 60

// coarse is the precision of a tier that has none, where the standing limit is counted in buckets: the finest of that, as far as
// it fits into the window.
func coarse(window time.Duration, standing Limit) time.Duration {
	precision := (window / partsOfWindow).Truncate(time.Microsecond)
	for _, tier := range standing {
		if !tier.Fixed {
			precision = min(precision, tier.Precision)
		}
	}
	return min(window, max(precision, MinWindow, shortestPrecision(window)))
}
