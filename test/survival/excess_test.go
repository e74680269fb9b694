package survival

import (
	"cmp"
	"slices"
	"time"

	"notifier/internal/ratelimit"
)

// excess returns the slots above the limit in the fullest window of any scope. If no scope exceeds its limit,
// it returns the unused slots of the global limit as a negative number.
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

// fullest returns the largest number of admissions that were certainly charged within one window. An
// admission that may have been charged before or after the window is left out, so a slow reply never adds to
// the excess.
func fullest(admissions []admission, window time.Duration) (most int) {
	byStart := slices.SortedFunc(slices.Values(admissions), func(a, b admission) int { return a.from.Compare(b.from) })
	for i, first := range byStart {
		if i > 0 && byStart[i-1].from.Equal(first.from) {
			continue
		}
		// The window excludes its end, so of two admissions exactly one window apart only one counts.
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

// median returns the median of values, which must not be empty.
func median[T cmp.Ordered](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
