package ratelimit_test

import (
	"cmp"
	"fmt"
	"slices"
)

// lose is the loss of a store that all replicas have healed, in this order and between two times: nothing is forgotten. had is what
// the store still had, or nil. The buckets are counted anew: the newest one takes what is not later than its end.
//
// It reports whether the answer would depend on the very moment.
func (m *model) lose(p replica, had *model, order []int, began, now int64) (unclear bool) {
	margin := 2 * endsBefore.Microseconds()
	m.clock = 0
	if had == nil {
		had = newModel(m.aged)
	}
	for _, a := range m.admissions {
		if a.inFlight && a.touched() <= now-p.retention {
			a.inFlight = false
		}
		unclear = unclear || a.inFlight && a.touched() <= now-p.retention+margin
		if !a.refunded {
			m.clock = max(m.clock, a.at)
		}
	}
	m.clock = max(m.clock, had.clock)
	names := map[string]level{}
	for _, a := range m.admissions {
		m.inFlightEnds = max(m.inFlightEnds, a.touched()+p.retention)
		for _, level := range p.levels(a.request.Category) {
			if known, found := names[level.name]; !found || level.keep > known.keep {
				names[level.name] = level
			}
		}
	}
	m.inFlightEnds, m.sentEnds = max(m.inFlightEnds, now+p.retention), max(m.sentEnds, now+p.dedupe)
	for name, level := range names {
		s := m.scope(name)
		s.logEnds = max(s.logEnds, now+level.keep)
		if level.width > 0 {
			unclear = m.loseBuckets(s, level, had, order, began, now) || unclear
		}
	}
	return unclear
}

// loseBuckets counts the slots of a scope anew: those that the store still had, and of all other admissions those that are not too old.
func (m *model) loseBuckets(s *scope, level level, had *model, order []int, began, now int64) (unclear bool) {
	known := map[string]bool{}
	for _, a := range had.admissions {
		known[admissionName(a)] = true
	}
	was := had.scope(level.name).copy(map[*admission]*admission{})
	s.buckets, s.bucketsEnd = was.buckets, was.bucketsEnd
	var missing []*admission
	for _, a := range m.admissions {
		if !a.refunded && !known[admissionName(a)] && slices.Contains(a.scopes, level.name) {
			unclear = unclear || a.at > began-level.keep && a.at <= now-level.keep
			if a.at > now-level.keep {
				missing = append(missing, a)
			}
		}
	}
	slices.SortStableFunc(missing, func(a, b *admission) int {
		return cmp.Or(slices.Index(order, ownerOf(a.request))-slices.Index(order, ownerOf(b.request)), cmp.Compare(a.at, b.at))
	})
	for _, a := range missing {
		ends := s.pourBack(a.at, a.request.Cost, m.bucketEnd(level.width, a.at))
		s.bucketsEnd = max(s.bucketsEnd, ends+level.keep)
	}
	return unclear
}

// pourBack adds slots to the newest bucket if they are not later than its end, or to a new one.
func (s *scope) pourBack(at int64, slots int, ends int64) int64 {
	if n := len(s.buckets); n > 0 && s.buckets[n-1].ends >= at {
		s.buckets[n-1].slots += slots
		return s.buckets[n-1].ends
	}
	s.buckets = append(s.buckets, &bucket{ends: ends, began: at, slots: slots})
	return ends
}

func admissionName(a *admission) string { return fmt.Sprint(identityOf(a.request), a.at) }
