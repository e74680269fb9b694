package status

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Bounds of the reads for the limits. Each category costs Redis two commands a tier.
const (
	maxIndexEntries = 1000 // of the limiter's index
	maxPeeked       = 200  // categories
)

// tally counts the events of a scope.
type tally struct{ sent, dropped int64 }

// scope is a scope with a row for each tier.
type scope struct {
	name     string
	rows     []Limit
	fullness float64 // of the fullest tier
	dropped  int64
}

// limits returns the rows of the limits, and how many groups and categories were left out.
func (r reading) limits(ctx context.Context) (rows []Limit, omitted int, err error) {
	if r.limiter == nil {
		return []Limit{}, 0, nil
	}
	recent, entries, err := r.limiter.Recent(ctx, maxIndexEntries)
	if err != nil {
		return []Limit{}, 0, err
	}
	tallies := r.view.tallies()
	candidates := candidates(recent, tallies)
	omitted = len(candidates) + max(0, entries-maxIndexEntries)
	scopes, err := r.peek(ctx, tallies, candidates[:min(len(candidates), maxPeeked)]...)
	if err != nil {
		return []Limit{}, 0, err
	}
	slices.SortStableFunc(scopes, func(a, b scope) int {
		return cmp.Or(
			cmp.Compare(rankOf(a.name), rankOf(b.name)), cmp.Compare(b.fullness, a.fullness),
			cmp.Compare(b.dropped, a.dropped), cmp.Compare(a.name, b.name),
		)
	})
	shown := map[int]int{}
	rows = []Limit{}
	for _, scope := range scopes {
		rank := rankOf(scope.name)
		if shown[rank]++; shown[rank] > maxRows[rank] {
			continue
		}
		rows = append(rows, scope.rows...)
	}
	omitted -= min(shown[categoryRank], maxCategories)
	return rows, omitted + max(0, shown[groupRank]-maxGroups), nil
}

// Ranks of scopes in the list, and how many of each are shown.
const (
	globalRank = iota
	groupRank
	categoryRank
)

var maxRows = [...]int{globalRank: 1, groupRank: maxGroups, categoryRank: maxCategories}

func rankOf(scope string) int {
	switch {
	case scope == steering.GlobalScope:
		return globalRank
	case strings.HasPrefix(scope, steering.GroupPrefix):
		return groupRank
	}
	return categoryRank
}

// tallies adds up the counts for each scope.
func (v view) tallies() map[string]tally {
	tallies := map[string]tally{}
	add := func(scope string, sent, dropped int64) {
		sum := tallies[scope]
		tallies[scope] = tally{sum.sent + sent, sum.dropped + dropped}
	}
	for _, count := range v.counts {
		var sent, dropped int64
		switch {
		case count.Outcome == outcome.Sent:
			sent = count.N
		case outcome.IsDrop(count.Outcome, count.Reason):
			dropped = count.N
		default:
			continue
		}
		add(steering.GlobalScope, sent, dropped)
		if count.Category != outcome.OtherCategories {
			category := outcome.CategoryOf(count.Category)
			add(steering.CategoryPrefix+category, sent, dropped)
			add(steering.GroupPrefix+ratelimit.GroupOf(category), sent, dropped)
		}
	}
	return tallies
}

// unnamed counts the events that no category shows.
func (v view) unnamed() (n int64) {
	for _, count := range v.counts {
		if count.Category == outcome.OtherCategories && (count.Outcome == outcome.Sent || outcome.IsDrop(count.Outcome, count.Reason)) {
			n += count.N
		}
	}
	return n
}

// candidates lists the categories with slots taken or with counts: those with the most drops first, then those
// with the latest admissions. Names that no category has are skipped.
func candidates(recent []string, tallies map[string]tally) []string {
	var counted []string
	for scope := range tallies {
		if category, found := strings.CutPrefix(scope, steering.CategoryPrefix); found {
			counted = append(counted, category)
		}
	}
	slices.Sort(counted)
	var all []string
	seen := map[string]bool{}
	for _, category := range slices.Concat(recent, counted) {
		if seen[category] || !pattern.IsCategory(category) {
			continue
		}
		seen[category] = true
		all = append(all, category)
	}
	slices.SortStableFunc(all, func(a, b string) int {
		return cmp.Compare(tallies[steering.CategoryPrefix+b].dropped, tallies[steering.CategoryPrefix+a].dropped)
	})
	return all
}

// peek reads how full the scopes of categories are, in the order of Limiter.Peek.
func (r reading) peek(ctx context.Context, tallies map[string]tally, categories ...string) ([]scope, error) {
	usages, err := r.limiter.Peek(ctx, categories...)
	if err != nil {
		return nil, err
	}
	var scopes []scope
	for _, usage := range usages {
		name := scopeOf(usage)
		if len(scopes) == 0 || scopes[len(scopes)-1].name != name {
			scopes = append(scopes, scope{name: name, dropped: tallies[name].dropped})
		}
		last := &scopes[len(scopes)-1]
		row := r.row(usage, tallies[name])
		last.rows = append(last.rows, row)
		last.fullness = max(last.fullness, row.fullness())
	}
	return scopes, nil
}

func scopeOf(u ratelimit.Usage) string {
	switch {
	case u.Category != "":
		return steering.CategoryPrefix + u.Category
	case u.Group != "":
		return steering.GroupPrefix + u.Group
	}
	return steering.GlobalScope
}

func (r reading) row(u ratelimit.Usage, counted tally) Limit {
	row := Limit{
		Scope: scopeOf(u), Limit: u.Tier.String(), Used: u.Used, Max: u.Tier.Count,
		Sent1h: counted.sent, Dropped1h: counted.dropped,
	}
	of := ratelimit.Scope{Group: u.Group, Category: u.Category}
	freeIn, atLeast := r.ends.Bound(of, r.view.now, u.FreeIn, u.AtLeast)
	if u.FreeIn > 0 {
		row.FreeAt, row.AtLeast = r.view.now.Add(freeIn), atLeast
	}
	return row
}

// fullness returns the used share of the tier, above 1 if the limit was lowered.
func (l Limit) fullness() float64 { return float64(l.Used) / float64(max(1, l.Max)) }
