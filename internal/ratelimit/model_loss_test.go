package ratelimit_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// lose applies a loss of the store that all workers have healed, in this order and between the times
// began and now: nothing is forgotten. had models the data that the store still had, or is nil. Restored
// slots take the form that the limits have by now, whatever form they had before. The newest bucket takes
// all slots up to its end.
//
// If unclear is true, the model cannot predict the result, usually because it depends on exact timing.
func (m *model) lose(p replica, had *model, order []int, began, now int64) (unclear bool) {
	margin := 2 * endsBefore.Microseconds()
	m.clock = 0
	if had == nil {
		had = newModel(m.aged)
	}
	indexed := maps.Clone(had.indexed)
	// An id past its dedupe window is not restored, but the store may still have it.
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
		// A store that was set back can have posts that no worker remembers any more.
		_, sent := m.sent[identityOf(a.request)]
		unclear = unclear || copied != nil && copied.inFlight && (copied.posts > 0 || a.released) && !a.inFlight && !sent
		// Only the store that was set back had forgotten the event. Its worker still remembers it.
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
		// If the store has the admission without a record in flight, it takes the event for settled,
		// even if the record has only expired.
		if a.inFlight && copied != nil && !copied.inFlight {
			unclear = unclear || len(a.known) > 1
			a.inFlight, a.forgotten = false, true
		}
		if a.post == a.failed {
			a.post = "" // only the store forgot the failure, in an earlier loss
		}
		if copied != nil && copied.inFlight && copied.posts == a.posts && copied.post != "" {
			a.post = copied.post // the failure is lost: the message may be in Slack
		}
		// Any other worker that knew the event restores its slots.
		unclear = unclear || a.released && !slices.Equal(a.known, []int{a.releaser})
		if !a.refunded {
			m.clock = max(m.clock, a.at, a.moved)
			of := identity{category: a.request.Category, source: a.request.Source}
			// The index keeps an admission longer than the journal of its worker.
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

// admittedAfter reports whether the event was admitted again later.
func (m *model) admittedAfter(a *admission) bool {
	return slices.ContainsFunc(m.admissions, func(b *admission) bool { return b.is(a.request) && b.at > a.at })
}

// clockMarks returns the store's clock mark while each worker restores. Each worker first raises the
// mark to its own latest admission or move, and does not restore slots that have left every window by
// that time.
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

// keepsEach reports whether all limits in force write logs.
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

// pourBack adds slots to the newest bucket if that ends at or after at, otherwise to a new one.
func (s *scope) pourBack(at int64, slots int, ends int64) {
	if n := len(s.buckets); n > 0 && s.buckets[n-1].ends >= at {
		s.buckets[n-1].slots += slots
		return
	}
	s.buckets = append(s.buckets, &bucket{ends: ends, began: at, slots: slots})
}

func admissionName(a *admission) string { return fmt.Sprint(identityOf(a.request), a.at) }
