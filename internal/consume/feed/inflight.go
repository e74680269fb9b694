package feed

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// inflight holds everything that has arrived and has not ended, bounded in number and in bytes. A part of
// it is queued, in order of arrival, until the worker takes it.
type inflight struct {
	capacity int
	budget   int64         // bytes
	arrived  chan struct{} // has a token when the queue may have become longer, or has closed
	freed    chan struct{} // has a token when there may be more room

	mu       sync.Mutex
	held     map[string]*Delivery // by Token: a stream that was created again uses the same sequences
	queue    []*Delivery
	wanted   int // length of the queue at which its reader is woken; see gather
	closed   bool
	bytes    int64 // of held
	reserved int64 // bytes for messages that were requested
	peak     int64 // maximum of bytes and reserved together
}

// room is space for a number of messages, and for their bytes.
type room struct {
	messages int
	bytes    int64
}

func newInflight(capacity int, budget int64) *inflight {
	return &inflight{
		capacity: capacity, budget: budget,
		arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		held: map[string]*Delivery{},
	}
}

// add queues a delivery; reserved bytes remain for messages still to come. If the event is already held, the
// server has delivered it again, because AckWait has passed or the consumer was created again: the held
// delivery continues as a redelivery, with the newer acknowledgement subject.
func (f *inflight) add(d *Delivery, reserved int64) {
	f.mu.Lock()
	known := f.held[d.Token]
	if known != nil {
		known.reply, known.touched = d.reply, d.touched
		known.Redelivered.Store(true)
	} else {
		f.held[d.Token] = d
		f.queue = append(f.queue, d)
		f.bytes += d.Bytes
	}
	f.setReserved(reserved)
	wake := known == nil && f.enough(f.wanted)
	f.mu.Unlock()
	if wake {
		signal(f.arrived)
	}
}

// reserve sets the bytes reserved for messages that were requested.
func (f *inflight) reserve(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setReserved(bytes)
}

// setReserved is called with mu held.
func (f *inflight) setReserved(bytes int64) {
	f.reserved = bytes
	f.peak = max(f.peak, f.bytes+bytes)
}

// forgetReplies is called when the stream was deleted. The deliveries in flight are settled like all others,
// but never acknowledged: their sequences belong to other messages now.
func (f *inflight) forgetReplies() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.held {
		d.reply = ""
	}
}

// take moves up to limit queued deliveries to the caller. It waits while the queue is empty, until it is
// closed (nil, nil), idle has passed (nil, nil) or ctx ends.
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

// gather waits until the queue is long enough for a batch to be worth its cost, for patience at most. It
// returns early if there is no room for more, nothing more will arrive, or ctx ends.
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
		case <-f.arrived: // the token may be an earlier one
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

// done reports whether nothing more will arrive and the queue is empty.
func (f *inflight) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed && len(f.queue) == 0
}

// release removes deliveries that have ended. A delivery that was removed before is skipped.
func (f *inflight) release(deliveries ...*Delivery) {
	f.mu.Lock()
	for _, d := range deliveries {
		if f.held[d.Token] == d {
			delete(f.held, d.Token)
			f.bytes -= d.Bytes
		}
	}
	f.mu.Unlock()
	signal(f.freed)
}

// free returns the room left beside the deliveries in flight and the reserved room.
func (f *inflight) free(reserved room) room {
	f.mu.Lock()
	defer f.mu.Unlock()
	return room{
		messages: max(0, f.capacity-len(f.held)-reserved.messages),
		bytes:    max(0, f.budget-f.bytes-reserved.bytes),
	}
}

// full reports whether nothing more can be requested, by number or by bytes.
func (f *inflight) full() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.noRoom()
}

func (f *inflight) noRoom() bool {
	return len(f.held) >= f.capacity || f.bytes >= f.budget-f.budget/minShare
}

func (f *inflight) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// repliesOf returns the acknowledgement subjects of deliveries. Deliveries of a deleted stream are skipped.
func (f *inflight) repliesOf(deliveries ...*Delivery) []string {
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

// untouched returns the acknowledgement subjects of the deliveries that the server has heard nothing of since
// then, and counts them as touched now.
func (f *inflight) untouched(since, now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var replies []string
	for _, d := range f.held {
		if d.reply != "" && d.touched.Before(since) {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// drain removes everything. It returns the acknowledgement subjects in the order of the stream, because the
// server delivers the events again in the order in which they are handed back.
func (f *inflight) drain() []string {
	f.mu.Lock()
	all := make([]*Delivery, 0, len(f.held))
	for _, d := range f.held {
		all = append(all, d)
	}
	clear(f.held)
	f.bytes, f.queue = 0, nil
	f.mu.Unlock()
	slices.SortFunc(all, func(a, b *Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	return f.repliesOf(all...)
}

// signal leaves a token in a channel of capacity one, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
