package lanes

import (
	"cmp"
	"slices"
	"time"
)

// lane is one channel's queue and state. Lanes.mu guards it.
//
// Items keep their order by Since, unless they were told to wait (Result.After). Such an item waits apart,
// and stays apart: when its time has come, it goes after the fresh ones, but has one of retryEvery turns at
// least. So items that fail for a reason of their own do not hold up the others, and are tried all the same.
type lane[T any] struct {
	channel    string
	gate       *gate
	fresh      []*entry[T]   // never told to wait; by Since
	delayed    []*entry[T]   // by the time of their next turn
	posting    *entry[T]     // has its turn
	freshInRow int           // posts of fresh items since the last one of a delayed item
	retryAt    time.Time     // next turn of a delayed item, at the earliest
	accepted   time.Time     // time of the last success
	notBefore  time.Time     // the pace has no room before
	busySince  time.Time     // end of the last turn, or first item after none
	interval   time.Duration // between the ends of turns, smoothed
	held       Size
	tally      Tally
}

// entry is one item in a lane.
type entry[T any] struct {
	item   Item[T]
	number uint64 // in the order of arrival
	added  time.Time
	at     time.Time // its next turn, at the earliest; zero if it was never told to wait
	tried  bool      // it had a turn
	failed time.Time // the first failure that the item itself may have caused; zero if there was none
}

// While fresh items are left, one of retryEvery posts is a delayed item's.
const retryEvery = 5

// maxSilence bounds how long failures of a category are put down to its items after the channel's last
// success.
const maxSilence = time.Minute

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
		since = ln.due()
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

// pop removes the item that has the next turn. A turn without a post changes no order, so an item that waits
// for the pace, and has a place in it, is chosen again, unless a fresh item arrives that goes before it.
func (ln *lane[T]) pop(now time.Time) *entry[T] {
	queue, place := &ln.fresh, 0
	due := len(ln.delayed) > 0 && !ln.due().After(now)
	switch {
	case len(ln.fresh) == 0 || due && ln.freshInRow >= retryEvery-1:
		queue = &ln.delayed
	case !ln.gate.open:
		place = ln.bestProbe()
	}
	next := (*queue)[place]
	*queue = slices.Delete(*queue, place, place+1)
	return next
}

// due returns the time of the next turn of a delayed item. There is one.
func (ln *lane[T]) due() time.Time {
	if at := ln.delayed[0].at; at.After(ln.retryAt) {
		return at
	}
	return ln.retryAt
}

// bestProbe returns the place of a fresh item: of the category with the fewest failing items, the oldest. If
// the items of one category fail for a reason of their own, another category opens the gate.
func (ln *lane[T]) bestProbe() (place int) {
	failing := map[string]int{}
	for _, e := range ln.delayed {
		if !e.failed.IsZero() {
			failing[e.item.Category]++
		}
	}
	for i, e := range ln.fresh {
		if failing[e.item.Category] < failing[ln.fresh[place].item.Category] {
			place = i
		}
	}
	return place
}

// blamed reports whether a failure of the item that has its turn says something about the channel. If the
// gate is closed, it does: the probe has failed. If not, the item is at fault if the channel has taken others
// since its first failure. Other items of its category are at fault as well, for maxSilence after a success.
func (ln *lane[T]) blamed(now time.Time) bool {
	if !ln.gate.open {
		return true
	}
	isAtFault := func(e *entry[T]) bool { return !e.failed.IsZero() && ln.accepted.After(e.failed) }
	if isAtFault(ln.posting) {
		return false
	}
	return now.Sub(ln.accepted) > maxSilence || !slices.ContainsFunc(ln.delayed, func(e *entry[T]) bool {
		return e.item.Category == ln.posting.item.Category && isAtFault(e)
	})
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
