package simulate

import (
	"cmp"
	"slices"
	"time"

	"notifier/internal/outcome"
)

// Count has the outcomes of the events of one category, or of all.
type Count struct {
	Category  string // empty: all categories together
	Events    int
	Sent      int
	Global    int // dropped by the global limit
	Group     int // dropped by the limit of the category's group
	Own       int // dropped by the category's limit
	Duplicate int
	Dead      int // their cost exceeds every limit

	KeptFrom int // of Global: dropped while slots were kept for other categories

	silence time.Duration
	missed  bool  // an event was not sent since then
	since   int64 // the latest message, or before any message the first event, in microseconds
	last    int64 // the latest event
	missing bool  // an event was not sent at any time
}

// Silence returns the longest time between two messages of the category in which events of it arrived and
// were not sent. It begins with the category's first event if no message was sent before, and ends with its
// last event if none was sent after. Duplicates do not make a silence, because their content was sent. ok is
// false if every event was sent or a duplicate.
func (c Count) Silence() (longest time.Duration, ok bool) {
	longest = c.silence
	if c.missed {
		longest = max(longest, time.Duration(c.last-c.since)*time.Microsecond)
	}
	return longest, c.missing
}

func (c *Count) add(v Verdict) {
	if c.Events == 0 {
		c.since = v.micros
	}
	c.Events++
	c.last = v.micros
	switch {
	case v.Outcome == outcome.Sent:
		c.Sent++
		if c.missed {
			c.silence = max(c.silence, time.Duration(v.micros-c.since)*time.Microsecond)
		}
		c.since, c.missed = v.micros, false
		return
	case v.Reason == outcome.Duplicate:
		c.Duplicate++
		return
	case v.Outcome == outcome.Dead:
		c.Dead++
	case v.Reason == outcome.Global:
		c.Global++
		if v.Reserved > 0 {
			c.KeptFrom++
		}
	case v.Reason == outcome.Group:
		c.Group++
	default:
		c.Own++
	}
	c.missed, c.missing = true, true
}

// Summary counts verdicts, which have to be added in the order of their times. The zero Summary is empty.
type Summary struct {
	all        Count
	byCategory map[string]*Count
}

// Add counts one verdict.
func (s *Summary) Add(v Verdict) {
	if s.byCategory == nil {
		s.byCategory = map[string]*Count{}
	}
	count := s.byCategory[v.Category]
	if count == nil {
		count = &Count{Category: v.Category}
		s.byCategory[v.Category] = count
	}
	count.add(v)
	s.all.add(v)
}

// All returns the count of all categories together.
func (s *Summary) All() Count { return s.all }

// Categories returns the counts by category, the one with the most events first.
func (s *Summary) Categories() []Count {
	counts := make([]Count, 0, len(s.byCategory))
	for _, count := range s.byCategory {
		counts = append(counts, *count)
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Category, b.Category))
	})
	return counts
}
