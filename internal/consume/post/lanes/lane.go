package lanes

import (
	"cmp"
	"slices"
	"time"
)

// lane is one channel's queue and state. Lanes.mu guards it.
//
// Items keep their order by Since, unless they were told to wait (Result.After). Such an item waits apart, and
// stays apart: when its time has come, it alternates with the others. So an item that fails for a reason of its
// own is never the only probe of a closed gate.
type lane[T any] struct {
	channel   string
	gate      *gate
	fresh     []*entry[T]   // never told to wait; by Since
	delayed   []*entry[T]   // by the time of their next turn
	posting   *entry[T]     // has its turn
	retried   bool          // the last turn was a delayed item's
	notBefore time.Time     // the pace has no room before
	busySince time.Time     // end of the last turn, or first item after none
	interval  time.Duration // between the ends of turns, smoothed
	held      Size
	tally     Tally
}

// entry is one item in a lane.
type entry[T any] struct {
	item   Item[T]
	number uint64 // in the order of arrival
	added  time.Time
	at     time.Time // its next turn, at the earliest; zero if it was never told to wait
	tried  bool      // it had a turn
}

// insert queues an entry that was never told to wait. A redelivered event comes before younger ones.
func (ln *lane[T]) insert(e *entry[T]) {
	place, _ := slices.BinarySearchFunc(ln.fresh, e, func(other, e *entry[T]) int {
		return cmp.Or(other.item.Since.Compare(e.item.Since), cmp.Compare(other.number, e.number))
	})
	ln.fresh = slices.Insert(ln.fresh, place, e)
}

// delay queues an entry for a turn at e.at or later.
func (ln *lane[T]) delay(e *entry[T]) {
	place, _ := slices.BinarySearchFunc(ln.delayed, e, func(other, e *entry[T]) int {
		return cmp.Or(other.at.Compare(e.at), -1)
	})
	ln.delayed = slices.Insert(ln.delayed, place, e)
}

// readySince returns the time since when the lane could have a turn, which may be in the future. It returns
// false if only a change brings the next turn.
func (ln *lane[T]) readySince() (since time.Time, ok bool) {
	switch {
	case ln.posting != nil:
		return time.Time{}, false
	case len(ln.fresh) > 0:
		since = ln.fresh[0].added
	case len(ln.delayed) > 0:
		since = ln.delayed[0].at
	default:
		return time.Time{}, false
	}
	for _, bound := range []time.Time{ln.busySince, ln.notBefore, ln.gate.opens()} {
		if bound.After(since) {
			since = bound
		}
	}
	return since, true
}

// pop removes the item that has the next turn.
func (ln *lane[T]) pop(now time.Time) *entry[T] {
	due := len(ln.delayed) > 0 && !ln.delayed[0].at.After(now)
	ln.retried = len(ln.fresh) == 0 || due && !ln.retried
	queue := &ln.fresh
	if ln.retried {
		queue = &ln.delayed
	}
	first := (*queue)[0]
	*queue = slices.Delete(*queue, 0, 1)
	return first
}

func (ln *lane[T]) state(now time.Time) State {
	s := State{
		Channel: ln.channel, Held: ln.held.Items, Posting: ln.posting != nil,
		Closed: max(0, ln.gate.opens().Sub(now)), Paced: now.Before(ln.notBefore),
	}
	waiting := slices.Clone(ln.delayed)
	if len(ln.fresh) > 0 {
		waiting = append(waiting, ln.fresh[0])
	}
	if ln.posting != nil {
		waiting = append(waiting, ln.posting)
	}
	for _, e := range waiting {
		if s.Oldest.IsZero() || e.item.Since.Before(s.Oldest) {
			s.Oldest = e.item.Since
		}
	}
	return s
}
