package survival

import (
	"cmp"
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// excess is by how many the fullest window of any scope was above its limit; below 0: by how many the global
// one stayed below.
func excess(rules ratelimit.Rules, admissions []admission) int {
	scopes := map[string][]admission{"": admissions}
	for _, a := range admissions {
		scopes[a.request.Category] = append(scopes[a.request.Category], a)
	}
	worst := -rules.Global[0].Count
	for category, its := range scopes {
		limit := rules.Global
		if category != "" {
			limit = rules.LimitFor(category)
		}
		for _, tier := range limit {
			if above := fullest(its, tier.Window) - tier.Count; category == "" || above > 0 {
				worst = max(worst, above)
			}
		}
	}
	return worst
}

// fullest is the largest number of admissions that were certainly in one window: none of them can have been
// charged before it began, or after it was over. So a slow answer never makes it larger than it was.
func fullest(admissions []admission, window time.Duration) (most int) {
	byStart := slices.SortedFunc(slices.Values(admissions), func(a, b admission) int { return a.from.Compare(b.from) })
	for i, first := range byStart {
		if i > 0 && byStart[i-1].from.Equal(first.from) {
			continue
		}
		// The window is open at one end, so of two admissions that are a whole window apart only one counts.
		ends := first.from.Add(window)
		n := 0
		for _, a := range byStart[i:] {
			if !a.from.Before(ends) {
				break
			}
			if a.to.Before(ends) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// median of one value or more.
func median[T cmp.Ordered](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
