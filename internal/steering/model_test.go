package steering_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/steering"
)

// stored is what the hash in Redis should hold, and what one that follows should know: lists that are looked through for each question.
// The zero value: there is no hash.
type stored struct {
	version int64
	orders  map[string]steering.Order // by kind and target
	kept    time.Time                 // until then the hash is there
}

// keptFor is how long a hash stays after its last change.
const keptFor = 32 * 24 * time.Hour

func nameOf(o steering.Order) string { return string(o.Kind) + " " + o.Target }

func (s stored) copy() stored {
	s.orders = maps.Clone(s.orders)
	return s
}

// inForce are the orders that have not ended, mutes first, then by their targets.
func (s stored) inForce(at time.Time) []steering.Order {
	var orders []steering.Order
	for _, o := range s.orders {
		if o.Until.After(at) {
			orders = append(orders, o)
		}
	}
	slices.SortFunc(orders, func(a, b steering.Order) int {
		return cmp.Or(strings.Compare(string(b.Kind), string(a.Kind)), strings.Compare(a.Target, b.Target))
	})
	return orders
}

// changed gives the hash another version, and removes what has ended.
func (s *stored) changed(now time.Time) {
	if s.orders == nil {
		s.orders = map[string]steering.Order{}
	}
	s.version, s.kept = max(s.version+1, now.UnixMicro()), now.Add(keptFor)
	maps.DeleteFunc(s.orders, func(_ string, o steering.Order) bool { return !o.Until.After(now) })
}

func (s *stored) set(o steering.Order, now time.Time) {
	s.changed(now)
	s.orders[nameOf(o)] = o
}

func (s *stored) clear(name string, now time.Time) (found bool) {
	if o, there := s.orders[name]; !there || !o.Until.After(now) {
		return false
	}
	s.changed(now)
	delete(s.orders, name)
	return true
}

// putBack stores what a replica knows if there is no hash, or an older version.
func (s *stored) putBack(known stored, now time.Time) {
	if s.version < known.version {
		*s = known.copy()
		s.kept = now.Add(keptFor)
	}
}

// muteOf is the mute that counts for a category, or none.
func muteOf(orders []steering.Order, category string) (mute steering.Order, found bool) {
	for _, o := range orders {
		if o.Kind == steering.Mute && matches(strings.Split(o.Target, "."), strings.Split(category, ".")) &&
			(!found || moreSpecific(strings.Split(o.Target, "."), strings.Split(mute.Target, "."))) {
			mute, found = o, true
		}
	}
	return mute, found
}

// matches reports whether the tokens of a pattern match those of a category.
func matches(pattern, category []string) bool {
	switch {
	case len(pattern) == 0 || len(category) == 0:
		return len(pattern) == len(category)
	case pattern[0] == ">":
		return true
	}
	return (pattern[0] == "*" || pattern[0] == category[0]) && matches(pattern[1:], category[1:])
}

// moreSpecific compares two patterns that match the same category, by the first token that is not of the same kind.
func moreSpecific(one, other []string) bool {
	wide := func(token string) int { return 1 + slices.Index([]string{"*", ">"}, token) }
	for i := range min(len(one), len(other)) {
		if a, b := wide(one[i]), wide(other[i]); a != b {
			return a < b
		}
	}
	return false
}
