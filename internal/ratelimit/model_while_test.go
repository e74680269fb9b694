package ratelimit_test

import (
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// A limit for a while refuses instead of the standing one, and that is all it changes: a scope is stored as under its standing limit,
// in the same form and for as long, so that what was admitted meanwhile counts as if the standing limit had admitted it.

// during is the replica while other limits hold, by the names of their scopes.
func (p replica) during(instead map[string]ratelimit.Limit) replica {
	p.instead = instead
	var all, exact int64 // the longest windows
	seen := func(grains []int64, window int64) {
		all = max(all, window)
		if grains == nil {
			exact = max(exact, window)
		}
	}
	standing := []ratelimit.Limit{p.rules.Global, p.rules.Category, p.rules.Group}
	for _, limit := range p.rules.Overrides.All() {
		standing = append(standing, limit)
	}
	for _, limit := range p.rules.GroupOverrides {
		standing = append(standing, limit)
	}
	for _, limit := range standing {
		seen(grainsOf(limit), longest(limit))
	}
	for name := range instead {
		level := p.level(ratelimit.Global, name)
		seen(level.grains, level.window)
	}
	p.dedupe = max(p.asked.Microseconds(), exact)
	p.retention = max(exact, min(all, p.asked.Microseconds()))
	if len(p.rules.Reserve) > 0 { // the sets of reserved categories are kept so long
		p.retention = max(p.retention, p.level(ratelimit.Global, globalScope).window)
	}
	return p
}

// standing is the limit that the settings give to a scope, or none.
func (p replica) standing(name string) ratelimit.Limit {
	switch of, rest, _ := strings.Cut(name, " "); of {
	case "group":
		return p.rules.GroupLimit(rest)
	case "category":
		return p.rules.LimitFor(rest)
	}
	return p.rules.Global
}

// level is the budget of one scope. Without a limit there is none.
func (p replica) level(outcome ratelimit.Outcome, name string) level {
	standing := p.standing(name)
	of := level{outcome: outcome, name: name, limit: standing, grains: grainsOf(standing), window: longest(standing)}
	instead, found := p.instead[name]
	if !found {
		of.keep = of.window
		return of
	}
	form := standing
	if len(standing) == 0 { // a group that has a limit only meanwhile is stored as the global scope is
		form = p.rules.Global
	}
	of.window = max(of.window, longest(instead))
	of.keep, of.limit, of.grains = of.window, slices.Clone(instead), nil
	if grainsOf(form) == nil {
		for i := range of.limit {
			of.limit[i].Precision = 0
		}
		return of
	}
	for i, tier := range of.limit {
		if !tier.Fixed && tier.Precision == 0 {
			of.limit[i].Precision = precisionLike(form, tier.Window)
		}
	}
	window := longest(standing)
	if len(standing) == 0 {
		window = longest(instead)
	}
	of.grains = append(grainsOf(of.limit), min(window, slices.Min(grainsOf(form))))
	return of
}

// precisionLike is that of a tier which is written without one, where buckets are used: the finest there, or a sixtieth of its window
// if that is finer, as far as a precision may be so short or so long.
func precisionLike(limit ratelimit.Limit, window time.Duration) time.Duration {
	finest := (window / 60).Truncate(time.Microsecond)
	for _, tier := range limit {
		if tier.Precision > 0 {
			finest = min(finest, tier.Precision)
		}
	}
	return min(window, max(finest, shortestPrecision(window), ratelimit.MinWindow))
}
