// Package lanes decides which event a worker posts next.
//
// Each Slack channel has a lane: a queue with a gate, a pace, and at most one post in flight. One post at a
// time keeps a channel's messages in order, and it is fast enough, because Slack takes about one message a
// second and channel. A gate above all lanes stands for the workspace. So a channel that fails, or has more
// to post than its pace allows, delays its own events and no others.
//
// The package only schedules. It knows neither Slack nor Redis; its caller reports how each turn ended.
package lanes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrClosed is returned by Next after Close, once every item is done.
var ErrClosed = errors.New("no more posts")

// Lanes holds items in one lane for each channel, and gives them their turns. It is safe for concurrent use.
type Lanes[T any] struct {
	room    Size
	backoff Backoff

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced to make every waiting Next look again
	workspace *gate
	byChannel map[string]*lane[T]
	order     []*lane[T] // in the order of their first items
	heldUntil time.Time  // no turn begins before
	closed    bool
	held      Size // by all lanes
	added     uint64
}

// Item is one event to be posted.
type Item[T any] struct {
	Value    T
	Category string    // items of one category may fail for a common reason
	Bytes    int64     // its memory
	Since    time.Time // orders the items of a lane
}

// Size counts items and their memory in bytes.
type Size struct {
	Items int
	Bytes int64
}

// New makes lanes that share room. channels get their lanes at once; any other gets one with its first item.
func New[T any](room Size, bounds Backoff, channels ...string) *Lanes[T] {
	l := &Lanes[T]{
		room: room, backoff: bounds,
		changed: make(chan struct{}), workspace: newGate(bounds), byChannel: map[string]*lane[T]{},
	}
	for _, channel := range channels {
		l.lane(channel)
	}
	return l
}

// lane returns the channel's lane. mu is held, or l is not shared yet.
func (l *Lanes[T]) lane(channel string) *lane[T] {
	known := l.byChannel[channel]
	if known == nil {
		known = &lane[T]{channel: channel, gate: newGate(l.backoff)}
		l.byChannel[channel] = known
		l.order = append(l.order, known)
	}
	return known
}

// Add queues an item, whatever the lane holds; see Surplus.
func (l *Lanes[T]) Add(channel string, item Item[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, now := l.lane(channel), time.Now()
	if queue.held.Items == 0 {
		queue.busySince = now
	}
	l.added++
	queue.insert(&entry[T]{item: item, number: l.added, added: now})
	l.count(queue, 1, item.Bytes)
	l.announce()
}

// count counts items that come to a lane or leave it. mu is held.
func (l *Lanes[T]) count(queue *lane[T], items int, bytes int64) {
	for _, held := range []*Size{&queue.held, &l.held} {
		held.Items += items
		held.Bytes += bytes
	}
}

// A lane is slow if its queue takes slowDrain or more. A wait that is shorter than stallTime says nothing
// about the turns after it: the first one opens a connection.
const (
	slowDrain = 30 * time.Second
	stallTime = time.Second
)

// Surplus removes and returns the youngest item of a lane that holds more than its share. It returns no item
// that had a turn: whoever gets it next would not know how that ended.
func (l *Lanes[T]) Surplus(channel string) (youngest Item[T], found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.lane(channel)
	if !l.exceedsShare(queue) {
		return youngest, false
	}
	for i, e := range slices.Backward(queue.fresh) {
		if !e.tried {
			queue.fresh = slices.Delete(queue.fresh, i, i+1)
			l.count(queue, -1, -e.item.Bytes)
			return e.item, true
		}
	}
	return youngest, false
}

// exceedsShare reports whether a lane holds more than it may. A slow lane may hold as much as all lanes
// together leave free: one slow channel fills half of the room, and with every further one the rest is still
// shared. A lane that is not slow may use all the room, because an item that goes elsewhere loses its place
// in the order. A single item never exceeds the share. mu is held.
func (l *Lanes[T]) exceedsShare(queue *lane[T]) bool {
	free := Size{Items: l.room.Items - l.held.Items, Bytes: l.room.Bytes - l.held.Bytes}
	switch {
	case queue.held.Items <= 1:
		return false
	case free.Items < 0 || free.Bytes < 0:
		return true
	case queue.held.Items <= free.Items && queue.held.Bytes <= free.Bytes:
		return false
	}
	return queue.drainTime() >= slowDrain
}

// DrainTime estimates how long a lane takes for everything that it holds, by the pace of its last turns. A
// lane that is closed or waits for Slack gets slower with each moment.
func (l *Lanes[T]) DrainTime(channel string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lane(channel).drainTime()
}

// Crowded returns the channels of the lanes that hold more than their share, the slowest first.
func (l *Lanes[T]) Crowded() (channels []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var crowded []*lane[T]
	for _, queue := range l.order {
		if l.exceedsShare(queue) {
			crowded = append(crowded, queue)
		}
	}
	slices.SortStableFunc(crowded, func(a, b *lane[T]) int { return cmp.Compare(b.drainTime(), a.drainTime()) })
	for _, queue := range crowded {
		channels = append(channels, queue.channel)
	}
	return channels
}

// drainTime is Lanes.DrainTime. Lanes.mu is held.
func (ln *lane[T]) drainTime() time.Duration {
	perItem := ln.interval
	idle := time.Since(ln.busySince)
	closed := max(time.Until(ln.notBefore), time.Until(ln.gate.opens()))
	if wait := max(idle, closed); wait >= stallTime {
		perItem = max(perItem, wait)
	}
	return perItem * time.Duration(ln.held.Items)
}

// Next waits for an item that may be posted now. The caller ends the turn with Finish. Next returns ctx's
// error, or ErrClosed.
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

// freshFirst is the time after the end of a workspace's pause in which only a lane with fresh items makes the
// probe. Nothing is fetched during the pause, so an item that fails for a reason of its own would otherwise
// be the only candidate, and start the next pause before any other item could arrive.
const freshFirst = 2 * time.Second

// unscheduled is the wait for an event that a change announces, not a time.
const unscheduled = time.Hour

// tryNext begins a turn, or returns how long to wait and the channel that ends the wait early. It returns
// neither if there is nothing more to do. The lane that has waited longest for its turn comes first.
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
	var first *lane[T]
	var since time.Time
	for _, candidate := range l.order {
		ready, ok := candidate.readySince()
		if probe := l.workspace.opens().Add(freshFirst); len(candidate.fresh) == 0 && probe.After(ready) {
			ready = probe
		}
		if ok && (first == nil || ready.Before(since)) {
			first, since = candidate, ready
		}
	}
	switch {
	case first == nil:
		return nil, unscheduled, l.changed
	case since.After(now):
		return nil, since.Sub(now), l.changed
	}
	return l.begin(first, now), 0, nil
}

// begin starts a turn. mu is held.
func (l *Lanes[T]) begin(queue *lane[T], now time.Time) *Turn[T] {
	queue.posting = queue.pop(now)
	return &Turn[T]{
		Item: queue.posting.item.Value, lanes: l, lane: queue,
		workspace: l.workspace.enter(), channel: queue.gate.enter(),
	}
}

// Hold begins no turn for d, because something that every post needs is unavailable.
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

// Paused reports whether the workspace's gate is closed, so that nothing is posted at all. It returns false
// once a probe may begin, because a new item may have to be the probe.
func (l *Lanes[T]) Paused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.workspace.wait(time.Now()) > 0
}

// announce wakes every waiting Next. mu is held.
func (l *Lanes[T]) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// State describes one lane.
type State struct {
	Channel string
	Held    int           // items, with the one that is being posted
	Posting bool          // an item has its turn
	Oldest  time.Time     // Item.Since of the oldest item; zero if the lane is empty
	Closed  time.Duration // time until the channel's gate lets a post or a probe through
	Paced   bool          // the pace has no room at the moment
}

// States describes every lane, by channel in alphabetical order.
func (l *Lanes[T]) States() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := make([]State, 0, len(l.order))
	for _, queue := range l.order {
		states = append(states, queue.state(time.Now()))
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Channel, b.Channel) })
	return states
}
