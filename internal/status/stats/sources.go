package stats

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/outcome"
)

const (
	// MaxSources bounds the sources of a category that are counted by name in ten minutes: publishers choose
	// them, too.
	MaxSources = 8

	// OtherSource replaces the sources past the first MaxSources. It is no publisher's: their _other is counted
	// as __other.
	OtherSource = outcome.OtherCategories

	// Sources are counted together for so long. By minute there would be sixty hashes to read; by hour the
	// first MaxSources names, which may be noise, would stay for an hour.
	slotMinutes = 10
	hourSlots   = 6
	readSlots   = hourSlots + 1 // of which the oldest is more than an hour ago, in part
)

// What a source is counted by: whether its events were sent, refused as in limitReasons, or ended otherwise.
const (
	sourceSent = iota
	sourceRefused
	sourceElse
	sourceKinds
)

var sourceKindNames = [sourceKinds]string{"sent", "refused", "else"}

// SourceSlot is what was counted by sources in ten minutes, or less where they are not over.
type SourceSlot struct {
	Start, End time.Time     // by the clock of Redis; a count can be a second late
	Counts     []SourceCount // in no order
}

// SourceCount is how many events of a category one source has caused.
type SourceCount struct {
	Category string `json:"-"` // as in Count; never OtherCategory
	// as outcome.CategoryName returns it; empty: those that name none; OtherSource: those past the first
	Source  string `json:"source"`
	Sent    int64  `json:"sent"`    // of Total
	Refused int64  `json:"refused"` // of Total: dropped by a limit, or muted
	Total   int64  `json:"total"`
}

// slot is what was counted by sources in ten minutes and not flushed yet. The names stay until the slot is
// over.
type slot struct{ categories map[string]*sourceTally }

// sourceTally is what was counted of one category.
type sourceTally struct {
	sources []sourceCount // a handful
	named   int
}

type sourceCount struct {
	name string
	n    [sourceKinds]int64
}

// observeSource counts n events of a category, which has the name of outcome.CategoryName; r.mu is held.
func (r *Recorder) observeSource(minute int64, became, reason, category, source string, n int64) {
	number := minute / slotMinutes
	s := r.slots[number]
	if s == nil {
		s = &slot{categories: map[string]*sourceTally{}}
		r.slots[number] = s
	}
	if t := s.tally(category); t != nil {
		t.count(outcome.CategoryName(source)).n[sourceKind(became, reason)] += n
	}
}

func sourceKind(became, reason string) int {
	switch {
	case became == outcome.Sent:
		return sourceSent
	case became == outcome.Dropped && slices.Contains(limitReasons, reason):
		return sourceRefused
	}
	return sourceElse
}

// tally returns nil for the categories past the first ones, and for one that no event can have.
func (s *slot) tally(category string) *sourceTally {
	if t := s.categories[category]; t != nil {
		return t
	}
	if category == "" || strings.Contains(category, sourceMark) || len(s.categories) >= MaxCategories {
		return nil
	}
	t := &sourceTally{}
	s.categories[strings.Clone(category)] = t
	return t
}

func (t *sourceTally) count(source string) *sourceCount {
	for i := range t.sources {
		if t.sources[i].name == source {
			return &t.sources[i]
		}
	}
	if source != "" && source != OtherSource {
		if t.named >= MaxSources || strings.Contains(source, sourceMark) {
			return t.count(OtherSource)
		}
		t.named++
	}
	t.sources = append(t.sources, sourceCount{name: strings.Clone(source)})
	return &t.sources[len(t.sources)-1]
}

// takeSources moves what was counted in the ten minutes of a minute into the batch, and removes the slots
// that no minute in memory belongs to; r.mu is held.
func (r *Recorder) takeSources(b *batch) {
	if s := r.slots[b.minute/slotMinutes]; s != nil && len(b.counts) > 0 {
		for category, t := range s.categories {
			for i := range t.sources {
				source := &t.sources[i]
				for kind, n := range source.n {
					if n > 0 {
						b.sources = append(b.sources, sourceKindNames[kind], category, source.name, strconv.FormatInt(n, 10))
						source.n[kind] = 0
					}
				}
			}
		}
	}
	r.removeSlots()
}

func (r *Recorder) removeSlots() {
	used := map[int64]bool{}
	for minute := range r.minutes {
		used[minute/slotMinutes] = true
	}
	for number := range r.slots {
		if !used[number] {
			delete(r.slots, number)
		}
	}
}

// sourceMark separates the parts of a field of Keys.sources. No category and no source of an event has it: it
// is a control character.
const sourceMark = "\t"

// decodeSources decodes the hash of one slot.
func decodeSources(key string, hash *redis.MapStringStringCmd) ([]SourceCount, error) {
	fields, err := hash.Result()
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", key, err)
	}
	sums := map[SourceCount]SourceCount{}
	for field, value := range fields {
		parts := strings.Split(field, sourceMark)
		if len(parts) != 3 || !slices.Contains(sourceKindNames[:], parts[0]) {
			return nil, fmt.Errorf(
				"redis: %s: field %.80q, expected what became of events, a category and a source",
				key,
				field,
			)
		}
		n, err := parseCount(value)
		if err != nil {
			return nil, fmt.Errorf("redis: %s: field %.80q: %w", key, field, err)
		}
		name := SourceCount{Category: parts[1], Source: parts[2]}
		sum := sums[name]
		sum.Total += n
		switch parts[0] {
		case sourceKindNames[sourceSent]:
			sum.Sent += n
		case sourceKindNames[sourceRefused]:
			sum.Refused += n
		}
		sums[name] = sum
	}
	counts := make([]SourceCount, 0, len(sums))
	for name, sum := range sums {
		sum.Category, sum.Source = name.Category, name.Source
		counts = append(counts, sum)
	}
	return counts, nil
}

// SumSources adds up slots, by category: the source with the most events that were refused first, and what
// stands for no source or for several last.
func SumSources(slots []SourceSlot) map[string][]SourceCount {
	byCategory := map[string][]SourceCount{}
	for _, slot := range slots {
		for _, count := range slot.Counts {
			sums := byCategory[count.Category]
			i := slices.IndexFunc(sums, func(sum SourceCount) bool { return sum.Source == count.Source })
			if i < 0 {
				byCategory[count.Category] = append(sums, count)
				continue
			}
			sums[i].Sent += count.Sent
			sums[i].Refused += count.Refused
			sums[i].Total += count.Total
		}
	}
	for _, sums := range byCategory {
		slices.SortFunc(sums, func(a, b SourceCount) int {
			return cmp.Or(
				cmp.Compare(a.rank(), b.rank()),
				cmp.Compare(b.Refused, a.Refused),
				cmp.Compare(b.Total, a.Total),
				cmp.Compare(a.Source, b.Source),
			)
		})
	}
	return byCategory
}

// Named reports whether this is one source.
func (c SourceCount) Named() bool { return c.rank() == 0 }

func (c SourceCount) rank() int {
	switch c.Source {
	case OtherSource:
		return 1
	case "":
		return 2
	}
	return 0
}
