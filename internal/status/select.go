package status

import (
	"cmp"
	"slices"

	"notifier/internal/outcome"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Bounds of what is read and shown. There may be 100,000 categories, and each that is looked at costs Redis a
// command or two.
const (
	mostEntries    = 1000     // of the limiter's index
	mostLookedAt   = 200      // categories whose limits are read
	mostCategories = 100      // that are shown
	mostGroups     = 50       // that are shown
	mostSteering   = 50       // that are shown
	mostSlots      = 1000     // that are read
	fewSlots       = 100      // that are shown as long as there is room for them
	fewReplicas    = 50       // the same
	mostBytes      = 64 << 10 // of a Status as JSON
)

// candidates are the categories with slots taken or with counts in the last hour. Those with the most drops
// come first, and then those with the latest admissions: what is dropped although nothing of it was admitted
// lately is what burns. recent is in that order already.
func candidates(recent []string, sums []stats.Count) []string {
	dropped := map[string]int64{}
	var counted []string
	for _, count := range sums {
		if count.Category == stats.OtherCategory {
			continue
		}
		category := outcome.CategoryOf(count.Category)
		counted = append(counted, category)
		if count.Outcome == outcome.Dropped {
			dropped[category] += count.N
		}
	}
	var all []string
	known := map[string]bool{}
	for _, category := range slices.Concat(recent, counted) {
		if !known[category] {
			known[category] = true
			all = append(all, category)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(dropped[b], dropped[a]) })
	return all
}

// fullestFirst orders scopes as they are shown.
func fullestFirst(a, b Scope) int {
	return cmp.Or(
		cmp.Compare(fullness(b), fullness(a)),
		cmp.Compare(b.Dropped, a.Dropped),
		cmp.Compare(a.name(), b.name()),
	)
}

// mostDroppedFirst orders scopes by what they miss.
func mostDroppedFirst(a, b Scope) int {
	return cmp.Or(cmp.Compare(b.Dropped, a.Dropped), fullestFirst(a, b))
}

// choose returns the scopes that are shown, the fullest first: the half of most of them with the most drops,
// the fullest others, and what stands for the other categories.
func choose(scopes []Scope, most int) []Scope {
	slices.SortFunc(scopes, mostDroppedFirst)
	sure := map[string]bool{stats.OtherCategory: true}
	for _, scope := range scopes[:min(len(scopes), most/2)] {
		if scope.Dropped > 0 {
			sure[scope.name()] = true
		}
	}
	slices.SortFunc(scopes, fullestFirst)
	room := most + 1 - len(sure)
	return slices.DeleteFunc(scopes, func(scope Scope) bool {
		if sure[scope.name()] {
			return false
		}
		room--
		return room < 0
	})
}

// fit leaves out what matters least until the status is no longer than that as JSON as it is sent, with what
// controls a terminal escaped: slots beyond the newest ones, sources beyond three of a category, the minutes
// of the groups and categories that come last, the sources of categories of which little was refused,
// replicas beyond 50, further slots, categories, groups, sources and reserves, and at last all replicas, and
// what differs between them.
func (s *Status) fit(most int) {
	for {
		var size counter
		if err := term.NewJSON(&size).Encode(s); err != nil || int(size) <= most {
			return
		}
		switch {
		case len(s.Slots) > fewSlots:
			s.Slots, s.MoreSlots = s.Slots[:fewSlots], s.MoreSlots+len(s.Slots)-fewSlots
		case s.shortenSources(fewSources):
		case leaveOutMinutes(s.Groups), leaveOutMinutes(s.Categories):
		case len(s.Sources) >= 2*fewWithSources:
			s.leaveOutSources()
		case len(s.Replicas) > fewReplicas:
			s.leaveOutReplicas()
		case len(s.Slots) > 0:
			s.Slots, s.MoreSlots = half(s.Slots, s.MoreSlots)
		case len(s.Categories) > 0 && len(s.Categories) >= len(s.Groups):
			s.Categories, s.More = half(s.Categories, s.More)
		case len(s.Groups) > 0:
			s.Groups, s.MoreGroups = half(s.Groups, s.MoreGroups)
		case len(s.Sources) > 0:
			s.leaveOutSources()
		case len(s.Steering) > 0:
			s.Steering, s.MoreSteering = half(s.Steering, s.MoreSteering)
		case len(s.Reserves) > 0:
			s.Reserves, s.MoreReserves = half(s.Reserves, s.MoreReserves)
		case len(s.Replicas) > 0:
			s.leaveOutReplicas()
		case len(s.Settings.Differ) > 0: // the warnings name what differs, too
			s.Settings.Differ = s.Settings.Differ[:len(s.Settings.Differ)/2]
		default:
			return
		}
	}
}

// leaveOutReplicas leaves out half of the replicas: ready ones rather than others.
func (s *Status) leaveOutReplicas() {
	kept := slices.Clone(s.Replicas)
	slices.SortStableFunc(kept, func(a, b stats.Replica) int { return cmp.Compare(readiness(a), readiness(b)) })
	kept, s.MoreReplicas = half(kept, s.MoreReplicas)
	slices.SortFunc(kept, func(a, b stats.Replica) int { return cmp.Compare(a.ID, b.ID) })
	s.Replicas = kept
}

func readiness(replica stats.Replica) int {
	if replica.Ready {
		return 1
	}
	return 0
}

// half keeps the first half of a list, and adds to how many are left out.
func half[T any](list []T, leftOut int) (kept []T, more int) {
	kept = list[:len(list)/2]
	return kept, leftOut + len(list) - len(kept)
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(bytes []byte) (int, error) {
	*c += counter(len(bytes))
	return len(bytes), nil
}

// leaveOutMinutes leaves out the minutes of the last half of the scopes that have some, and reports whether
// any had.
func leaveOutMinutes(scopes []Scope) bool {
	var having []int
	for i, scope := range scopes {
		if len(scope.Minutes) > 0 {
			having = append(having, i)
		}
	}
	for _, i := range having[len(having)/2:] {
		scopes[i].Minutes = nil
	}
	return len(having) > 0
}
