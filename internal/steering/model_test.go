package steering_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/steering"
)

// stored models the hash in Redis, and a follower's knowledge of it, as plain lists. The zero value means that
// there is no hash.
type stored struct {
	version int64
	orders  map[string]steering.Order // by kind and target
	kept    time.Time                 // until then the hash is there
}

// keptFor is the life of a hash after its last change.
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

// changed gives the hash another version, and removes ended entries.
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

// restore stores a worker's copy if there is no hash, or an older version.
func (s *stored) restore(known stored, now time.Time) {
	if s.version < known.version {
		*s = known.copy()
		s.kept = now.Add(keptFor)
	}
}
