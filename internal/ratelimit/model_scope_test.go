package ratelimit_test

import (
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// scope holds the slots of one scope. A worker writes either the log or the buckets, and counts both.
type scope struct {
	log        []*charge
	buckets    []*bucket // oldest first
	logEnds    int64     // expiry of the key
	bucketsEnd int64
}

type charge struct {
	of   *admission
	time int64
	cost int
}

type bucket struct {
	ends  int64
	began int64 // first admission in it
	slots int
}

// pour adds slots to the newest bucket if that has not ended, otherwise to a new one, and returns the
// bucket's end. The newest bucket is cut to the end of a new one if that is earlier.
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

// chargeOf returns the admission's charge in the log, or nil.
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

// giveBack removes the slots of an admission. If the log does not have them, they leave the first bucket
// that had not ended at the admission, provided that it had begun by then and holds enough slots.
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

// floor returns the last multiple of length up to t. Multiples are by the server's clock, which does not
// include the time that a test has passed by making entries older.
func (m *model) floor(t, length int64) int64 { return t - (t-m.aged())%length }

// bucketEnd returns the end of a new bucket of this width at t.
func (m *model) bucketEnd(width, t int64) int64 { return m.floor(t, width) + width - 1 }

// counts reports whether a slot of this time counts in a tier at now.
func (m *model) counts(tier ratelimit.Tier, time, now int64) bool {
	window := tier.Window.Microseconds()
	if tier.Fixed {
		return time >= m.floor(now, window)
	}
	return time > now-window
}

// used counts the slots taken in a tier. Charges after now do not count; buckets that end after now do.
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

// replica is one worker's view of the limits.
type replica struct {
	number    int                        // among workers with the same rules
	rules     ratelimit.Rules            // from the settings
	instead   map[string]ratelimit.Limit // temporary limits by scope; see during
	asked     time.Duration              // dedupe window
	dedupe    int64
	retention int64
}

func newReplica(rules ratelimit.Rules, dedupe time.Duration) replica {
	return replica{rules: rules, asked: dedupe, dedupe: dedupe.Microseconds()}.during(nil)
}

// during returns the worker with temporary limits by scope. Its admissions count in the windows of the
// settings afterwards.
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

// remembers returns how long the record of an event lives: the dedupe window or the longest window of
// any limit, whichever is longer.
func (p replica) remembers() int64 { return max(p.dedupe, p.retention) }

// level is one scope of an event, with the limit that a worker applies.
type level struct {
	verdict ratelimit.Verdict
	name    string
	limit   ratelimit.Limit // in force
	width   int64           // of its buckets. Zero means that it writes a log.
	keep    int64           // retention of its charges
}

const globalScope = "global"

func groupScope(group string) string { return "group " + group }

func categoryScope(category string) string { return "category " + category }

// levels returns the levels of a category. On a tie, a refusal names the first one.
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

// everyLevel returns the levels of a category, including the group's even if it has no limit.
func (p replica) everyLevel(category string) []level {
	levels := p.levels(category)
	if len(levels) == 2 {
		levels = append(levels, level{verdict: ratelimit.Group, name: groupScope(ratelimit.GroupOf(category))})
	}
	return levels
}

// standing returns the limit of a scope by the settings. It may be empty.
func (p replica) standing(name string) ratelimit.Limit {
	switch of, rest, _ := strings.Cut(name, " "); of {
	case "group":
		return p.rules.GroupLimit(rest)
	case "category":
		return p.rules.LimitFor(rest)
	}
	return p.rules.Global
}

// level returns one scope with the limit in force, which may be empty.
func (p replica) level(verdict ratelimit.Verdict, name string) level {
	of := level{verdict: verdict, name: name, limit: p.standing(name)}
	of.keep = longest(of.limit)
	if instead, found := p.instead[name]; found {
		of.limit, of.keep = instead, max(of.keep, longest(instead))
	}
	of.width = widthOf(of.limit)
	return of
}

// widthOf returns the bucket width of a limit. Zero means that it writes a log.
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
	for _, tier := range limit { // all are fixed: the greatest common divisor of their windows
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
