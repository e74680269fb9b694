package preflight

import (
	"context"
	"slices"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// checkLimits shows the limits in their shortest form, and where one of them has no effect or not the expected one.
func checkLimits(_ context.Context, s settings.Settings, r *report) {
	limits := s.Store.Limits
	r.ok("%s overall, %s per category", limits.Global, limits.Category)
	if neverFirst(limits.Category, limits.Global) {
		r.warn("set LIMIT_CATEGORY lower",
			"the category limit %s allows everything that the global limit %s allows: one category can take every slot", limits.Category, limits.Global)
	}
	longest := max(longestWindow(limits.Global), longestWindow(limits.Category))
	for name, limit := range limits.Overrides.All() {
		longest = max(longest, longestWindow(limit))
		r.ok("%s for %s", limit, name)
		if neverFirst(limit, limits.Global) {
			r.warn("set it lower in LIMIT_OVERRIDES",
				"the limit %s for %s allows everything that the global limit %s allows: this category can take every slot", limit, name, limits.Global)
		}
	}
	checkPace(s, r)
	if s.Store.Dedupe < longest {
		r.note("", "DEDUPE_WINDOW %s is shorter than the longest limit window, so %s is used",
			term.ShortDuration(s.Store.Dedupe), term.ShortDuration(longest))
	}
	if s.MaxAge == 0 {
		r.note("set it where old events are of no use", "EVENT_MAX_AGE is 0: after an outage events are sent however old they are")
	}
}

func longestWindow(limit ratelimit.Limit) time.Duration {
	longest := time.Duration(0)
	for _, tier := range limit {
		longest = max(longest, tier.Window)
	}
	return longest
}

// neverFirst reports whether a category's limit can reject nothing that the global limit has not rejected already: each
// of its tiers is at least as wide as a global one whose window is at least as long.
func neverFirst(category, global ratelimit.Limit) bool {
	return !slices.ContainsFunc(category, func(own ratelimit.Tier) bool {
		return !slices.ContainsFunc(global, func(all ratelimit.Tier) bool { return all.Count <= own.Count && all.Window >= own.Window })
	})
}
