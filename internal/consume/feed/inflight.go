package feed

import (
	"context"
	"slices"
	"sync"
	"time"
)

// inflight is everything that has arrived and is not settled, bounded in number and in bytes. Part of it is
// queued, waiting for its decision. Nothing is ever requested that it has no room for, which bounds memory
// whatever is unavailable.
//
// It keeps the whole account: what is in flight, and what requests have reserved for messages that may still
// come.
type inflight struct {
	capacity int
	budget   int64         // bytes
	arrived  chan struct{} // has a token when the queue may have become longer, or has closed
	freed    chan struct{} // has a token when there may be more room

	mu         sync.Mutex
	queue      []*Delivery
	wanted     int // the queue is so long before its reader is woken, unless that gives up; see gather
	closed     bool
	ring       Delivery // sentinel of the list: ring.next is the oldest
	count      int
	bytes      int64 // what is in flight, by its cost
	reserved   room  // for what was requested
	peak       int64 // the most that bytes and those reserved have been together
	generation int   // see nextGeneration
	older      int   // how many are of an earlier generation
}

// room is space for so many messages, which cost so many bytes together.
type room struct {
	messages int
	bytes    int64
}

func newInflight(capacity int, budget int64) *inflight {
	f := &inflight{
		capacity: capacity, budget: budget,
		arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1),
	}
	f.ring.previous, f.ring.next = &f.ring, &f.ring
	return f
}

// add queues a delivery, which takes the place of what its request has reserved for it. A message that is in
// flight already has been redelivered because AckWait has passed: the older delivery goes on with the newer
// acknowledgement subject, and nothing is queued twice.
func (f *inflight) add(d *Delivery, reserved room) {
	f.mu.Lock()
	f.reserved.messages -= reserved.messages
	f.reserved.bytes -= reserved.bytes
	if d.Redelivered || f.older > 0 {
		if known := f.find(d.Token); known != nil {
			if known.generation != f.generation {
				known.generation = f.generation
				f.older--
			}
			known.reply, known.touched = d.reply, d.touched
			f.mu.Unlock()
			signal(f.freed)
			return
		}
	}
	d.generation = f.generation
	d.previous, d.next = f.ring.previous, &f.ring
	d.previous.next, d.next.previous = d, d
	f.count++
	f.charge(d.Cost)
	f.queue = append(f.queue, d)
	enough := f.enough(f.wanted)
	f.mu.Unlock()
	if enough {
		signal(f.arrived)
	}
	if d.Cost < reserved.bytes {
		signal(f.freed)
	}
}

// nextGeneration begins a generation: a consumer that was recreated, or that another server leads now, may
// deliver what is in flight as if for the first time.
func (f *inflight) nextGeneration() {
	f.mu.Lock()
	f.generation++
	f.older = f.count
	f.mu.Unlock()
}

// forgetReplies is called when the stream was deleted. What is in flight is settled like everything else, but
// there is nothing to acknowledge: its sequence belongs to another message now.
func (f *inflight) forgetReplies() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := f.ring.next; d != &f.ring; d = d.next {
		d.reply = ""
	}
}

// find walks the list; mu is held. It is called only for what may be in flight already, which is little.
func (f *inflight) find(token string) *Delivery {
	for d := f.ring.next; d != &f.ring; d = d.next {
		if d.Token == token {
			return d
		}
	}
	return nil
}

// take moves up to limit queued deliveries to the caller, without waiting for more than there are. It waits
// while there is none, until the queue is closed (nil, nil), idle has passed (nil, nil) or ctx ends.
func (f *inflight) take(ctx context.Context, limit int, idle time.Duration) ([]*Delivery, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		f.mu.Lock()
		n := min(limit, len(f.queue))
		if n > 0 || f.closed {
			taken := slices.Clone(f.queue[:n])
			f.queue = slices.Delete(f.queue, 0, n)
			f.mu.Unlock()
			return taken, nil
		}
		f.mu.Unlock()
		select {
		case <-f.arrived:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// gather waits until so many deliveries are queued that a batch is worth its cost, but for patience at most.
// It returns early when there is no room for more, nothing more will arrive, or ctx ends.
func (f *inflight) gather(ctx context.Context, wanted int, patience time.Duration) {
	f.mu.Lock()
	if f.enough(wanted) {
		f.mu.Unlock()
		return
	}
	f.wanted = wanted
	f.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for gathered := false; !gathered; {
		select {
		case <-f.arrived: // it may be a token of earlier
		case <-timer.C:
			gathered = true
		case <-ctx.Done():
			gathered = true
		}
		f.mu.Lock()
		if gathered = gathered || f.enough(wanted); gathered {
			f.wanted = 0
		}
		f.mu.Unlock()
	}
}

// enough reports whether the queue's reader need not wait for more; mu is held.
func (f *inflight) enough(wanted int) bool {
	return len(f.queue) >= wanted || f.closed || f.noRoom()
}

// close declares that nothing more will arrive.
func (f *inflight) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	signal(f.arrived)
}

// done reports whether nothing more will arrive and nothing is queued.
func (f *inflight) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed && len(f.queue) == 0
}

// release removes settled deliveries.
func (f *inflight) release(deliveries ...*Delivery) {
	f.mu.Lock()
	for _, d := range deliveries {
		if d.next == nil {
			continue // it was removed before
		}
		d.previous.next, d.next.previous = d.next, d.previous
		d.previous, d.next = nil, nil
		f.count--
		f.bytes -= d.Cost
		if d.generation != f.generation {
			f.older--
		}
	}
	f.mu.Unlock()
	signal(f.freed)
}

// free is the room that is neither in flight nor reserved, and for how many messages some is reserved.
func (f *inflight) free() (free room, reserved int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free.messages = max(0, f.capacity-f.count-f.reserved.messages)
	free.bytes = max(0, f.budget-f.bytes-f.reserved.bytes)
	return free, f.reserved.messages
}

// full reports whether nothing more can be requested, by number or by bytes.
func (f *inflight) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noRoom()
}

func (f *inflight) noRoom() bool { return f.count >= f.capacity || f.bytes >= f.budget*7/8 }

// reserve takes room for messages that are requested.
func (f *inflight) reserve(r room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved.messages += r.messages
	f.reserved.bytes += r.bytes
	f.charge(0)
}

// giveBack is for what was reserved and will not come.
func (f *inflight) giveBack(r room) {
	f.reserve(room{-r.messages, -r.bytes})
	signal(f.freed)
}

// charge adds to what is in flight; mu is held.
func (f *inflight) charge(cost int64) {
	f.bytes += cost
	f.peak = max(f.peak, f.bytes+f.reserved.bytes)
}

// size is how many deliveries are in flight.
func (f *inflight) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// replyOf is where the delivery is acknowledged now; empty: nowhere. See add and forgetReplies.
func (f *inflight) replyOf(d *Delivery) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return d.reply
}

// repliesOf is where deliveries are acknowledged now, without those that are acknowledged nowhere.
func (f *inflight) repliesOf(deliveries []*Delivery) []string {
	replies := make([]string, 0, len(deliveries))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range deliveries {
		if d.reply != "" {
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// untouched returns the acknowledgement subjects of the deliveries of which the server has heard nothing
// since then, and counts them as touched at now.
func (f *inflight) untouched(since, now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var replies []string
	for d := f.ring.next; d != &f.ring; d = d.next {
		if d.reply != "" && d.touched.Before(since) {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// drain removes everything, and returns the acknowledgement subjects.
func (f *inflight) drain() (replies []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := f.ring.next; d != &f.ring; d = d.next {
		if d.reply != "" {
			replies = append(replies, d.reply)
		}
	}
	f.ring.previous, f.ring.next = &f.ring, &f.ring
	f.count, f.bytes, f.older, f.queue = 0, 0, 0, nil
	return replies
}

// signal leaves a token in a channel of capacity one, if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
