package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// checkLimits shows the limits in their shortest form, and where one of them has no effect or not the
// expected one.
func checkLimits(_ context.Context, s settings.Settings, r *report) {
	limits := s.Store.Limits
	groups := ""
	if len(limits.Group) > 0 {
		groups = fmt.Sprintf(" %s per group,", limits.Group)
	}
	r.ok("%s overall,%s %s per category", limits.Global, groups, limits.Category)
	r.compare(
		"LIMIT_CATEGORY",
		named{"the category limit", limits.Category},
		named{"the global limit", limits.Global},
	)
	for _, limit := range []ratelimit.Limit{limits.Global, limits.Group, limits.Category} {
		checkPrecision(limit, r)
	}
	checkOverrides(limits, r)
	checkGroups(limits, r)
	checkReserve(limits, r)
	checkPace(s, r)
	if s.MaxAge == 0 {
		r.note(
			"set it where old events are of no use",
			"EVENT_MAX_AGE is 0: after an outage events are sent however old they are",
		)
	}
}

// checkOverrides looks at the limits of single categories and of patterns.
func checkOverrides(limits ratelimit.Rules, r *report) {
	for name, limit := range limits.Overrides.All() {
		r.ok("%s for %s", limit, name)
		checkPrecision(limit, r)
		own := named{"the limit of " + name, limit}
		r.compare("LIMIT_OVERRIDES", own, named{"the global limit", limits.Global})
		group := limits.Group // of any group that has no limit of its own
		if first := ratelimit.GroupOf(name); !pattern.HasWildcard(first) {
			group = limits.GroupLimit(first)
		}
		r.compare("LIMIT_OVERRIDES", own, named{"the limit of its group", group})
	}
}

// named is a limit, and what it is called.
type named struct {
	name  string
	limit ratelimit.Limit
}

// compare warns of a limit that allows all that a wider one allows.
func (r *report) compare(variable string, own, wider named) {
	if neverFirst(own.limit, wider.limit) {
		r.warn(
			"set it lower in "+variable,
			"%s %s allows everything that %s %s allows: one alone can take every slot",
			own.name,
			own.limit,
			wider.name,
			wider.limit,
		)
	}
}

// checkGroups looks at the limits that the categories of a group share.
func checkGroups(limits ratelimit.Rules, r *report) {
	global, category := named{"the global limit", limits.Global}, named{"the category limit", limits.Category}
	r.compare("LIMIT_GROUP", named{"the group limit", limits.Group}, global)
	r.compare("LIMIT_CATEGORY", category, named{"the group limit", limits.Group})
	for _, group := range slices.Sorted(maps.Keys(limits.GroupOverrides)) {
		limit := limits.GroupOverrides[group]
		r.ok("%s for the group %s", limit, group)
		checkPrecision(limit, r)
		own := named{"the limit of the group " + group, limit}
		r.compare("LIMIT_GROUP_OVERRIDES", own, global)
		r.compare("LIMIT_CATEGORY", category, own)
	}
}

// checkReserve shows what is kept for whom, and where that is more than can be used.
func checkReserve(limits ratelimit.Rules, r *report) {
	kept := slices.Sorted(maps.Keys(limits.Reserve))
	if len(kept) == 0 {
		return
	}
	forWhom := make([]string, len(kept))
	for i, category := range kept {
		forWhom[i] = fmt.Sprintf("%d for %s", limits.Reserve[category], category)
	}
	for _, tier := range limits.Global {
		if !limits.Reserves(tier) {
			r.note(
				"",
				"the global tier %s keeps no slots for anybody: it has no more than the %d that are reserved",
				tier,
				limits.Reserved(),
			)
		}
	}
	longest := limits.ReservedTier()
	r.ok(
		"%d of the global limit's %s reserved: %s",
		limits.Reserved(),
		term.Count(longest.Count, "slot"),
		term.List(forWhom),
	)
	for _, category := range kept {
		for _, level := range []struct {
			limit ratelimit.Limit
			whose string
		}{{limits.LimitFor(category), "its limit"}, {limits.GroupLimit(ratelimit.GroupOf(category)), "the limit of its group"}} {
			if most := level.limit.Most(longest.Window); limits.Reserve[category] > most {
				r.warn(
					"reserve fewer in LIMIT_RESERVE, or set that limit higher",
					"%s reserved for %s, and %s %s allows at most %d in %s: nobody can use the others",
					term.CountAre(limits.Reserve[category], "slot"),
					category,
					level.whose,
					level.limit,
					most,
					term.ShortDuration(longest.Window),
				)
			}
		}
	}
}

// checkPrecision notes that the precision of a limit is not used, because another tier of it needs each
// event.
func checkPrecision(limit ratelimit.Limit, r *report) {
	coarse := slices.ContainsFunc(
		limit,
		func(tier ratelimit.Tier) bool { return tier.Fixed || tier.Precision > 0 },
	)
	if coarse && limit.Exact() {
		r.note(
			"give each of its tiers a precision, if the memory for that matters",
			"the limit %s keeps each event, because one of its tiers has no precision",
			limit,
		)
	}
}

// neverFirst reports whether a limit can refuse nothing that the wider one, which holds for others as well,
// has not refused already: each of its tiers allows all that some tier of the wider one allows. A level
// without a limit refuses nothing.
func neverFirst(limit, wider ratelimit.Limit) bool {
	return len(limit) > 0 && !slices.ContainsFunc(limit, func(own ratelimit.Tier) bool {
		return !slices.ContainsFunc(wider, func(all ratelimit.Tier) bool { return covers(own, all) })
	})
}

// covers reports whether a tier allows all that another one allows.
func covers(own, all ratelimit.Tier) bool {
	counts := all.Count
	if all.Fixed && !(own.Fixed && all.Window%own.Window == 0) {
		counts *= 2 // its window can meet two of the other's
	}
	window := own.Window
	if own.Precision != all.Precision {
		window += own.Precision // so late a slot of its can be free
	}
	return counts <= own.Count && all.Window >= window
}
