package ratelimit_test

import (
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// scope is what one budget holds: a log of charges, and buckets. Replicas write one of the two, and count
// both.
type scope struct {
	log        []*charge
	buckets    []*bucket // the oldest first
	logEnds    int64     // when the key expires
	bucketsEnd int64
}

type charge struct {
	of   *admission
	time int64
	cost int
}

type bucket struct {
	ends  int64
	began int64 // the first admission in it
	slots int
}

// pour adds slots to the newest bucket, if that has not ended, or to a new one, and returns the end of the
// bucket. The newest one ends where the new one would, if that is earlier.
func (s *scope) pour(at int64, slots int, ends int64) int64 {
	if n := len(s.buckets); n > 0 && s.buckets[n-1].ends >= at {
		newest := s.buckets[n-1]
		newest.slots += slots
		newest.ends = min(newest.ends, ends)
		return newest.ends
	}
	s.buckets = append(s.buckets, &bucket{ends: ends, began: at, slots: slots})
	return ends
}

// chargeOf is what an admission takes in the log, or nil.
func (s *scope) chargeOf(a *admission) *charge {
	i := slices.IndexFunc(s.log, func(c *charge) bool { return c.of == a })
	if i < 0 {
		return nil
	}
	return s.log[i]
}

func (s *scope) trimLog(at int64) {
	s.log = slices.DeleteFunc(s.log, func(c *charge) bool { return c.time <= at })
	if len(s.log) == 0 {
		s.logEnds = 0
	}
}

func (s *scope) trimBuckets(at int64) {
	s.buckets = slices.DeleteFunc(s.buckets, func(b *bucket) bool { return b.ends <= at })
	if len(s.buckets) == 0 {
		s.bucketsEnd = 0
	}
}

// giveBack takes out what an admission was charged. The log knows whose a charge is. A bucket does not: there
// it is the first one that had not ended at the admission, if that had begun by then and holds as much.
func (s *scope) giveBack(a *admission) {
	before := len(s.log)
	s.log = slices.DeleteFunc(s.log, func(c *charge) bool { return c.of == a })
	if len(s.log) == 0 {
		s.logEnds = 0
	}
	if len(s.log) < before {
		return
	}
	i := slices.IndexFunc(s.buckets, func(b *bucket) bool { return b.ends >= a.at })
	if i < 0 || s.buckets[i].began > a.at || s.buckets[i].slots < a.request.Cost {
		return
	}
	s.buckets[i].slots -= a.request.Cost
	if s.buckets[i].slots == 0 {
		s.buckets = slices.Delete(s.buckets, i, i+1)
	}
	if len(s.buckets) == 0 {
		s.bucketsEnd = 0
	}
}

func (s *scope) copy(copies map[*admission]*admission) *scope {
	same := *s
	same.log, same.buckets = slices.Clone(s.log), slices.Clone(s.buckets)
	for i, c := range s.log {
		same.log[i] = &charge{of: copies[c.of], time: c.time, cost: c.cost}
	}
	for i, b := range s.buckets {
		other := *b
		same.buckets[i] = &other
	}
	return &same
}

// floor is the last multiple of a length up to t. The server knows nothing of what a test has waited for by
// making it older, and multiples are of its own clock.
func (m *model) floor(t, length int64) int64 { return t - (t-m.aged())%length }

// bucketEnd is where a bucket of this width ends that begins at t.
func (m *model) bucketEnd(width, t int64) int64 { return m.floor(t, width) + width - 1 }

// counts reports whether a slot of that time counts in a tier.
func (m *model) counts(tier ratelimit.Tier, time, now int64) bool {
	window := tier.Window.Microseconds()
	if tier.Fixed {
		return time >= m.floor(now, window)
	}
	return time > now-window
}

// used is how many slots are taken in a tier. A bucket ends in the future; a charge of the future is none.
func (m *model) used(s *scope, tier ratelimit.Tier, now int64) int {
	used := 0
	for _, c := range s.log {
		if c.time <= now && m.counts(tier, c.time, now) {
			used += c.cost
		}
	}
	for _, b := range s.buckets {
		if m.counts(tier, b.ends, now) {
			used += b.slots
		}
	}
	return used
}

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

func groupScope(group string) string { return "group " + group }

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
