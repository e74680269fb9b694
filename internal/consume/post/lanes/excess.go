package lanes

import (
	"container/list"
	"time"
)

// slowAfter is how long the first item of a lane may have been in it before the lane counts as slow.
const slowAfter = 500 * time.Millisecond

// slow reports whether the lane's items do not go out as they come in. mu is held.
func (ln *lane[T]) slow(now time.Time) bool {
	if ln.ready.Len() == 0 {
		return false
	}
	first := ln.ready.Front().Value.(*entry[T])
	return now.Before(ln.notBefore) || ln.gate.closed(now) || now.Sub(first.added) > slowAfter
}

// TakeExcess takes the last item of the slow lane that holds most, while all lanes together hold more than
// they may. The caller gives it back to its source for later (Parked), or to its lane (PutBack). Lanes that
// are not slow keep what they have: they are short again at once. Items that have had a turn stay as well:
// the next to get such an item would not know how that turn ended.
func (l *Lanes[T]) TakeExcess() (channel string, item Item[T], found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.within(l.most) {
		return "", Item[T]{}, false
	}
	var longest *lane[T]
	now := time.Now()
	for _, ln := range l.order {
		if !ln.slow(now) || ln.lastUntried() == nil {
			continue
		}
		if longest == nil || ln.held.share(l.most) > longest.held.share(l.most) {
			longest = ln
		}
	}
	if longest == nil {
		return "", Item[T]{}, false
	}
	last := longest.ready.Remove(longest.lastUntried()).(*entry[T])
	l.remove(longest, last)
	return longest.channel, last.Item, true
}

// lastUntried is the last item that has had no turn, or nil. Items that have had one are few, and near the
// front.
func (ln *lane[T]) lastUntried() *list.Element {
	for e := ln.ready.Back(); e != nil; e = e.Prev() {
		if !e.Value.(*entry[T]).tried {
			return e
		}
	}
	return nil
}

// share is how large it is compared with the bound, by number or by bytes, whichever is more.
func (s Size) share(bound Size) float64 {
	return max(float64(s.Items)/float64(bound.Items), float64(s.Bytes)/float64(bound.Bytes))
}

// PutBack returns an item that TakeExcess took to the end of its lane.
func (l *Lanes[T]) PutBack(channel string, item Item[T]) { l.Add(channel, item) }
