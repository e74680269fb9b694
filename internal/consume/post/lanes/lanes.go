package lanes

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrClosed is what Next returns when Close was called and every item is done.
var ErrClosed = errors.New("no more posts")

// Lanes gives the items of all lanes their turns, one after the other. It is safe for concurrent use.
type Lanes[T any] struct {
	concurrency int
	most        Size // of all lanes together, while some are slow; see TakeExcess
	backoff     Backoff

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever a waiting Next should look again
	workspace *gate
	byChannel map[string]*lane[T]
	order     []*lane[T] // the lane whose turn was longest ago comes first
	heldUntil time.Time  // no turn before then
	closed    bool
	running   int  // turns that have not ended
	held      Size // of all lanes together
}

// Item is something to be posted.
type Item[T any] struct {
	Value T
	Bytes int64     // the memory that it needs
	Since time.Time // since when it waits, for State.Oldest
}

// Size is a number of items, and the memory that they need in bytes.
type Size struct {
	Items int
	Bytes int64
}

// within reports whether it is no more than the bound.
func (s Size) within(bound Size) bool { return s.Items <= bound.Items && s.Bytes <= bound.Bytes }

// lane is one channel's queue and state. Guarded by Lanes.mu.
type lane[T any] struct {
	channel   string
	gate      *gate
	entries   map[*entry[T]]struct{} // all of them
	ready     *list.List             // of *entry[T], in the order in which they were added
	waiting   []*entry[T]            // for the end of their delay
	running   int                    // turns that have not ended
	notBefore time.Time              // the pace has no room before then
	held      Size
	parked    []parkedItems
	tally     Tally
}

// entry is one item in a lane.
type entry[T any] struct {
	Item[T]
	added time.Time
	at    time.Time // delayed until then, once or more; zero: never
	tried bool      // it has had a turn
}

// delayed reports whether the item has had to wait alone.
func (e *entry[T]) delayed() bool { return !e.at.IsZero() }

// New makes the lanes of a worker that makes up to concurrency posts at once, 1 or more. most is how much the
// lanes may hold while some are slow. channels are those known from the start; others get a lane with their
// first item.
func New[T any](concurrency int, most Size, bounds Backoff, channels ...string) *Lanes[T] {
	l := &Lanes[T]{
		concurrency: concurrency, most: most, backoff: bounds,
		changed: make(chan struct{}), workspace: newGate(bounds), byChannel: map[string]*lane[T]{},
	}
	for _, channel := range channels {
		l.lane(channel)
	}
	return l
}

// lane returns the channel's lane; mu is held, or l is not shared yet.
func (l *Lanes[T]) lane(channel string) *lane[T] {
	known := l.byChannel[channel]
	if known == nil {
		known = &lane[T]{
			channel: channel, gate: newGate(l.backoff),
			ready: list.New(), entries: map[*entry[T]]struct{}{},
		}
		l.byChannel[channel] = known
		l.order = append(l.order, known)
	}
	return known
}

// Add queues an item in its channel's lane.
func (l *Lanes[T]) Add(channel string, item Item[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(l.lane(channel), item)
}

func (l *Lanes[T]) add(ln *lane[T], item Item[T]) {
	e := &entry[T]{Item: item, added: time.Now()}
	if ln.firstFresh() != nil {
		ln.ready.PushBack(e)
	} else {
		ln.ready.PushFront(e) // before what has failed: that must not be the lane's only probe
	}
	ln.entries[e] = struct{}{}
	l.count(ln, 1, item.Bytes)
	l.announce()
}

// remove forgets an item that is done; mu is held.
func (l *Lanes[T]) remove(ln *lane[T], e *entry[T]) {
	delete(ln.entries, e)
	l.count(ln, -1, -e.Bytes)
}

func (l *Lanes[T]) count(ln *lane[T], items int, bytes int64) {
	for _, held := range []*Size{&ln.held, &l.held} {
		held.Items += items
		held.Bytes += bytes
	}
}

// Next waits for an item that may be posted now. Every turn has to be ended, with Done or Return. The error
// is ctx's, or ErrClosed.
func (l *Lanes[T]) Next(ctx context.Context) (*Turn[T], error) {
	for ctx.Err() == nil {
		turn, wait, changed := l.tryNext(time.Now())
		if turn != nil {
			return turn, nil
		}
		if changed == nil {
			return nil, ErrClosed
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil, ctx.Err()
}

// longestWait is the wait for what is announced by a change.
const longestWait = time.Hour

// tryNext gives a turn, or how long to wait and what ends the wait early. Without a turn and without a change
// there is nothing more to do.
func (l *Lanes[T]) tryNext(now time.Time) (*Turn[T], time.Duration, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && l.held.Items == 0 {
		return nil, 0, nil
	}
	if now.Before(l.heldUntil) {
		return nil, l.heldUntil.Sub(now), l.changed
	}
	if wait := l.workspace.wait(now); wait > 0 {
		return nil, wait, l.changed
	}
	shortest := longestWait
	for i, ln := range l.order {
		wait := ln.wait(now, l.share(ln))
		if wait == 0 {
			l.order = append(slices.Delete(l.order, i, i+1), ln)
			return l.begin(ln), 0, nil
		}
		shortest = min(shortest, wait)
	}
	return nil, shortest, l.changed
}

// share is how many posts of one lane may be in flight: half of what the others leave, so that lanes whose
// posts take long leave something to the next one; everything where there is only one lane.
func (l *Lanes[T]) share(ln *lane[T]) int {
	if len(l.order) == 1 {
		return l.concurrency
	}
	others := l.running - ln.running
	return max(1, (l.concurrency-others)/2)
}

// wait is how long it takes until the lane has an item for a turn, as far as time alone decides; 0: it has.
func (ln *lane[T]) wait(now time.Time, share int) time.Duration {
	next := ln.wake(now)
	switch {
	case ln.running >= share:
		return longestWait
	case ln.ready.Len() == 0:
		return next
	case now.Before(ln.notBefore):
		return ln.notBefore.Sub(now)
	}
	return ln.gate.wait(now)
}

// wake puts the items whose delay is over where putBack puts them, and returns how long it takes until the
// next one's is.
func (ln *lane[T]) wake(now time.Time) time.Duration {
	next := longestWait
	var due []*entry[T]
	ln.waiting = slices.DeleteFunc(ln.waiting, func(e *entry[T]) bool {
		if left := e.at.Sub(now); left > 0 {
			next = min(next, left)
			return false
		}
		due = append(due, e)
		return true
	})
	for _, e := range due {
		ln.putBack(e)
	}
	return next
}

// putBack puts an item that has had its turn before all others; one that was delayed, because it has failed,
// behind the first that was not. So no item that fails again and again is the lane's only probe.
func (ln *lane[T]) putBack(e *entry[T]) {
	if !e.delayed() {
		ln.ready.PushFront(e)
		return
	}
	if first := ln.firstFresh(); first != nil {
		for next := first.Next(); next != nil; next = next.Next() {
			if !next.Value.(*entry[T]).delayed() {
				ln.ready.InsertBefore(e, next) // and behind those that came back before it
				return
			}
		}
	}
	ln.ready.PushBack(e)
}

// firstFresh is the first item that was never delayed, or nil. It is near the front where there is one.
func (ln *lane[T]) firstFresh() *list.Element {
	for e := ln.ready.Front(); e != nil; e = e.Next() {
		if !e.Value.(*entry[T]).delayed() {
			return e
		}
	}
	return nil
}

// begin gives the lane's first item a turn; mu is held.
func (l *Lanes[T]) begin(ln *lane[T]) *Turn[T] {
	first := ln.ready.Remove(ln.ready.Front()).(*entry[T])
	ln.running++
	l.running++
	return &Turn[T]{
		Item: first.Value, lanes: l, lane: ln, entry: first,
		workspace: l.workspace.enter(), channel: ln.gate.enter(),
	}
}

// Hold gives out no turn for d: what every post needs is unavailable.
func (l *Lanes[T]) Hold(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := time.Now().Add(d); until.After(l.heldUntil) {
		l.heldUntil = until
	}
}

// Close declares that nothing more will be added.
func (l *Lanes[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.announce()
}

// Closed reports whether the workspace's gate is closed, so that no post is made at all. A gate that only
// waits for a probe is not closed: there may be no item that could be it.
func (l *Lanes[T]) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.workspace.closed(time.Now())
}

// announce wakes every waiting Next; mu is held.
func (l *Lanes[T]) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}
