package ratelimit_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// lose is the loss of a store that all replicas have healed, in this order and between two times: nothing is
// forgotten. had is what the store still had, or nil. What is put back is counted in the form that the limits
// have by now, also where it was not before; of buckets the newest one takes what is not later than its end.
//
// It reports whether the answer would depend on the very moment.
func (m *model) lose(p replica, had *model, order []int, began, now int64) (unclear bool) {
	margin := 2 * endsBefore.Microseconds()
	m.clock = 0
	if had == nil {
		had = newModel(m.aged)
	}
	indexed := maps.Clone(had.indexed)
	// An id that no longer counts as sent is not put back. The store may still have it.
	maps.DeleteFunc(m.sent, func(of identity, at int64) bool {
		unclear = unclear || at > began-p.dedupe && at <= now-p.dedupe+margin
		_, kept := had.sent[of]
		return at <= now-p.dedupe && !kept
	})
	known, missing, byName := map[string]*admission{}, []*admission(nil), map[string]*admission{}
	for _, a := range had.admissions {
		known[admissionName(a)] = a
	}
	for _, a := range m.admissions {
		copied := known[admissionName(a)]
		// A store that was set back knows posts again that no replica remembers.
		_, sent := m.sent[identityOf(a.request)]
		unclear = unclear || copied != nil && copied.inFlight && (copied.posts > 0 || a.released) && !a.inFlight && !sent
		// What only a store that was set back had forgotten is remembered by its replica still.
		if a.forgotten && (copied == nil || copied.inFlight) {
			unclear = unclear || m.admittedAfter(a)
			a.inFlight, a.forgotten = true, false
		}
		life := p.retention
		if a.posts > 0 {
			life = p.remembers()
		}
		if a.inFlight && a.touched() <= now-life {
			a.inFlight = a.posts > 0 && copied != nil && copied.inFlight
			if a.inFlight { // only the store still has it
				a.posts, a.begun, a.post = copied.posts, copied.begun, copied.post
			}
		} else {
			unclear = unclear || a.inFlight && a.touched() <= now-life+margin
		}
		// What the store had in flight and has no more passes for settled, also if its record has only come to its
		// end.
		if a.inFlight && copied != nil && !copied.inFlight {
			unclear = unclear || len(a.known) > 1
			a.inFlight, a.forgotten = false, true
		}
		if a.post == a.failed {
			a.post = "" // an earlier loss made it unknown in the store alone
		}
		if copied != nil && copied.inFlight && copied.posts == a.posts && copied.post != "" {
			a.post = copied.post // the failure is lost: it may be in Slack
		}
		unclear = unclear || a.released && !slices.Equal(a.known, []int{a.releaser}) // who else knew it puts it back
		if !a.refunded {
			m.clock = max(m.clock, a.at, a.moved)
			of := identity{category: a.request.Category, source: a.request.Source}
			// The index has an admission for longer than its replica remembers it.
			if max(a.touched(), m.sent[identityOf(a.request)]) > now-p.remembers() {
				indexed[of] = max(indexed[of], a.at)
			}
		}
		if !a.refunded && copied == nil {
			missing = append(missing, a)
		}
		byName[admissionName(a)] = a
	}
	m.clock, m.indexed = max(m.clock, had.clock), indexed
	m.scopes = map[string]*scope{}
	for name, s := range had.scopes {
		m.scopes[name] = s.copy(map[*admission]*admission{})
		for i, c := range s.log {
			a := byName[admissionName(c.of)]
			m.scopes[name].log[i].of = a
			m.scopes[name].log[i].time = max(c.time, a.moved)
		}
		m.scopes[name].log = slices.DeleteFunc(m.scopes[name].log, func(c *charge) bool { return c.of.released })
	}
	slices.SortStableFunc(missing, func(a, b *admission) int {
		return cmp.Or(slices.Index(order, a.by)-slices.Index(order, b.by), cmp.Compare(a.at, b.at))
	})
	marks := m.clockMarks(had.clock, order)
	for _, a := range missing {
		mark := marks[a.by]
		for _, level := range p.levels(a.request.Category) {
			from := a.moved
			if level.width > 0 {
				from = a.at
			}
			latest := max(now, mark) - level.keep
			unclear = unclear || from > max(began, mark)-level.keep && from <= latest
			if from <= latest || !slices.Contains(a.scopes, level.name) || level.width == 0 && a.released {
				continue
			}
			if s := m.scope(level.name); level.width == 0 {
				s.log = append(s.log, &charge{of: a, time: a.moved, cost: a.request.Cost})
			} else {
				s.pourBack(a.at, a.request.Cost, m.bucketEnd(level.width, a.at))
			}
		}
	}
	return unclear
}

// admittedAfter reports whether an event was admitted once more.
func (m *model) admittedAfter(a *admission) bool {
	return slices.ContainsFunc(m.admissions, func(b *admission) bool { return b.is(a.request) && b.at > a.at })
}

// clockMarks are the store's clock marks while each replica puts back. Each one lifts it to its own latest
// admission, and what has left every window by then is not put back.
func (m *model) clockMarks(mark int64, order []int) map[int]int64 {
	marks := map[int]int64{}
	for _, by := range order {
		for _, a := range m.admissions {
			if !a.refunded && (a.by == by || slices.Contains(a.known, by)) {
				mark = max(mark, a.at, a.moved)
			}
		}
		marks[by] = mark
	}
	return marks
}

// keepsEach reports whether all limits in force keep each event.
func (p replica) keepsEach() bool {
	for _, category := range categories {
		for _, level := range p.levels(category) {
			if level.width > 0 {
				return false
			}
		}
	}
	return true
}

// pourBack adds slots to the newest bucket if they are not later than its end, or to a new one.
func (s *scope) pourBack(at int64, slots int, ends int64) {
	if n := len(s.buckets); n > 0 && s.buckets[n-1].ends >= at {
		s.buckets[n-1].slots += slots
		return
	}
	s.buckets = append(s.buckets, &bucket{ends: ends, began: at, slots: slots})
}

func admissionName(a *admission) string { return fmt.Sprint(identityOf(a.request), a.at) }
