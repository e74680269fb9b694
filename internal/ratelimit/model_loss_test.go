package ratelimit_test

import (
	"cmp"
	"fmt"
	"slices"

	"notifier/internal/ratelimit"
)

// lose is the loss of a store that all replicas have healed, between two times: nothing is forgotten. had is what the store still had,
// or nil. There are two bounds, both of buckets. A slot is put back for as long as it is in the window, while a bucket keeps it until
// its end is out of that. And on a redis-server that ages, buckets end at other times than before; see model.floor.
//
// It reports whether the answer would depend on the very moment.
func (m *model) lose(p replica, had *model, order []int, began, now int64) (unclear bool) {
	m.healed = now
	for _, a := range m.admissions {
		if a.inFlight && a.touched() <= now-p.retention {
			a.inFlight, a.stale = false, false
		}
		unclear = unclear || a.inFlight && a.touched() <= now-p.retention+2*endsBefore.Microseconds()
	}
	seen := map[string]bool{}
	for _, a := range m.admissions {
		for _, level := range p.levels(a.request.Category) {
			if s := m.scope(level.name); s.buckets && !seen[level.name] {
				seen[level.name] = true
				unclear = m.loseBuckets(s, p, level, had, order, began, now) || unclear
			}
		}
	}
	return unclear
}

// keptOf is how long entries of a scope are needed.
func keptOf(p replica, level level) int64 {
	if level.outcome == ratelimit.Global {
		return max(level.keep, p.rules.LongestExactWindow().Microseconds())
	}
	return level.keep
}

// loseBuckets counts the slots of a scope anew: those that the store still had, and of all other admissions those that are not too old.
func (m *model) loseBuckets(s *scope, p replica, level level, had *model, order []int, began, now int64) (unclear bool) {
	keeps := min(p.retention, keptOf(p, level)) // what is put back
	known := map[string]bool{}
	s.charges, s.kept = nil, 0
	if had != nil {
		s.kept = had.scope(level.name).kept
		for _, a := range had.admissions {
			if !a.refunded { // else it may have been admitted again since, at the same moment where the clock stands still
				known[admissionName(a)] = true
			}
		}
		for _, c := range had.scope(level.name).charges {
			same := *c
			s.charges = append(s.charges, &same)
		}
	}
	var missing []*charge
	later := map[identity]bool{}
	for _, a := range slices.Backward(m.admissions) { // of an id that was admitted again, the last one is remembered
		of := identityOf(a.request)
		if !later[of] && !a.refunded && !known[admissionName(a)] && slices.Contains(a.scopes, level.name) {
			unclear = unclear || a.at > began-keeps && a.at <= now-keeps
			if a.at > now-keeps {
				missing = append(missing, &charge{of: a, cost: a.request.Cost})
			}
		}
		later[of] = true
	}
	slices.SortStableFunc(missing, func(a, b *charge) int {
		return cmp.Or(slices.Index(order, ownerOf(a.of.request))-slices.Index(order, ownerOf(b.of.request)), cmp.Compare(a.of.at, b.of.at))
	})
	if len(missing) > 0 {
		s.kept = s.keep(keptOf(p, level))
	}
	for _, c := range missing {
		s.pour(c, m.bucketEnd(level.grains, c.of.at))
	}
	return unclear
}

func admissionName(a *admission) string { return fmt.Sprint(identityOf(a.request), a.at) }

// pour adds a slot to the bucket in which it was, or to a new one.
func (s *scope) pour(c *charge, end int64) {
	c.time, c.began = end, c.of.at
	var bucket []*charge
	for _, other := range s.charges {
		switch {
		case other.time < c.of.at || len(bucket) > 0 && other.time > bucket[0].time:
		case len(bucket) > 0 && other.time == bucket[0].time:
			bucket = append(bucket, other)
		default:
			bucket = []*charge{other}
		}
	}
	if len(bucket) > 0 && bucket[0].time <= end {
		c.time, c.began = bucket[0].time, min(bucket[0].began, c.of.at)
		for _, other := range bucket {
			other.began = c.began
		}
	}
	s.charges = append(s.charges, c)
}
