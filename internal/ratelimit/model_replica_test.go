package ratelimit_test

import (
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// replica is one set of rules.
type replica struct {
	number    int                        // of several with the same rules
	rules     ratelimit.Rules            // the settings'
	instead   map[string]ratelimit.Limit // temporary limits, by the name of the scope; see during
	asked     time.Duration              // for the dedupe window
	dedupe    int64
	retention int64
}

func newReplica(rules ratelimit.Rules, dedupe time.Duration) replica {
	return replica{rules: rules, asked: dedupe, dedupe: dedupe.Microseconds()}.during(nil)
}

// during is the replica while temporary limits hold, by the names of their scopes. What is admitted meanwhile
// counts in the windows of the settings afterwards.
func (p replica) during(instead map[string]ratelimit.Limit) replica {
	p.instead, p.retention = instead, 0
	limits := []ratelimit.Limit{p.rules.Global, p.rules.Category, p.rules.Group}
	for _, limit := range p.rules.Overrides.All() {
		limits = append(limits, limit)
	}
	for _, limit := range p.rules.GroupOverrides {
		limits = append(limits, limit)
	}
	for _, limit := range instead {
		limits = append(limits, limit)
	}
	for _, limit := range limits {
		p.retention = max(p.retention, longest(limit))
	}
	return p
}

// remembers returns how long the record of an event lives: as long as an id that was sent, or as an admission
// can count.
func (p replica) remembers() int64 { return max(p.dedupe, p.retention) }

// level is one of the budgets that an event is charged to.
type level struct {
	verdict ratelimit.Verdict
	name    string
	limit   ratelimit.Limit // in force
	width   int64           // of the buckets that its charges are counted in; 0: each is kept
	keep    int64           // how long its charges are kept
}

const globalScope = "global"

func groupScope(group string) string       { return "group " + group }
func categoryScope(category string) string { return "category " + category }

// levels are those of a category, in the order in which they are named where they have room at the same time.
func (p replica) levels(category string) []level {
	levels, global := []level{p.level(ratelimit.Category, categoryScope(category))}, p.level(ratelimit.Global, globalScope)
	if p.rules.Reserve[category] > 0 {
		levels[0].keep = max(levels[0].keep, global.keep)
	}
	if group := p.level(ratelimit.Group, groupScope(ratelimit.GroupOf(category))); len(group.limit) > 0 {
		levels = append(levels, group)
	}
	return append(levels, global)
}

// everyLevel are those of a category with its group's, also if that has no limit.
func (p replica) everyLevel(category string) []level {
	levels := p.levels(category)
	if len(levels) == 2 {
		levels = append(levels, level{verdict: ratelimit.Group, name: groupScope(ratelimit.GroupOf(category))})
	}
	return levels
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
func (p replica) level(verdict ratelimit.Verdict, name string) level {
	of := level{verdict: verdict, name: name, limit: p.standing(name)}
	of.keep = longest(of.limit)
	if instead, found := p.instead[name]; found {
		of.limit, of.keep = instead, max(of.keep, longest(instead))
	}
	of.width = widthOf(of.limit)
	return of
}

// widthOf is the width of the buckets of a limit, or 0: it keeps each event.
func widthOf(limit ratelimit.Limit) int64 {
	var width int64
	for _, tier := range limit {
		switch {
		case tier.Precision > 0:
			width = tier.Precision.Microseconds()
		case !tier.Fixed:
			return 0
		}
	}
	if width > 0 {
		return width
	}
	for _, tier := range limit { // all are fixed
		a, b := width, tier.Window.Microseconds()
		for b > 0 {
			a, b = b, a%b
		}
		width = a
	}
	return width
}

func longest(limit ratelimit.Limit) int64 {
	var window int64
	for _, tier := range limit {
		window = max(window, tier.Window.Microseconds())
	}
	return window
}
