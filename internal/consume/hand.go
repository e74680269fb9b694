package consume

import (
	"context"
	"slices"
	"sync"
	"time"

	"notifier/internal/event"
)

// delivery is one message in this worker's hands, from its arrival until it is settled.
type delivery struct {
	event.Message
	token       string // names the stream message, the same at each redelivery; see ratelimit.Request
	streamSeq   uint64 // its place in the stream; 0 in core mode
	redelivered bool   // it was handed out before, to this worker or to another

	reply   string    // where to acknowledge; empty: nowhere. Guarded by hand.mu
	touched time.Time // when the server last heard that it is being worked on. Guarded by hand.mu
	era     int       // hand.era when it was handed out last. Guarded by hand.mu

	// Deliveries in hand form a list, oldest first, so that taking one out of it costs nothing. Guarded by hand.mu
	previous, next *delivery
}

// hand is what this worker holds: everything that has arrived and is not settled, in a bounded number. Part of it is
// queued, waiting for its decision. Nothing is ever asked for that it has no room for, which bounds memory whatever
// is away.
type hand struct {
	capacity int
	arrived  chan struct{} // has a token when the queue may have become longer, or has closed
	freed    chan struct{} // has a token when there may be more room

	mu     sync.Mutex
	queue  []*delivery
	closed bool
	ring   delivery // sentinel of the list: ring.next is the oldest
	held   int
	era    int // see doubt
	older  int // how many in hand are of an earlier era
}

func newHand(capacity int) *hand {
	h := &hand{capacity: capacity, arrived: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
	h.ring.previous, h.ring.next = &h.ring, &h.ring
	return h
}

// add queues a delivery. A message that is in hand already has been redelivered because the server lost patience: the
// older handle goes on with the newer acknowledgement subject, and nothing is queued twice.
func (h *hand) add(d *delivery) {
	h.mu.Lock()
	if d.redelivered || h.older > 0 {
		if known := h.find(d.token); known != nil {
			if known.era != h.era {
				known.era = h.era
				h.older--
			}
			known.reply, known.touched = d.reply, d.touched
			h.mu.Unlock()
			return
		}
	}
	d.era = h.era
	d.previous, d.next = h.ring.previous, &h.ring
	d.previous.next, d.next.previous = d, d
	h.held++
	h.queue = append(h.queue, d)
	h.mu.Unlock()
	signal(h.arrived)
}

// doubt begins an era: a consumer that was made anew, or that another server leads now, may hand out what is in hand
// as if for the first time.
func (h *hand) doubt() {
	h.mu.Lock()
	h.era++
	h.older = h.held
	h.mu.Unlock()
}

// disown says that what is in hand has left the stream with the stream itself. It is settled like everything else, but
// there is nothing to acknowledge: its place belongs to another message now.
func (h *hand) disown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := h.ring.next; d != &h.ring; d = d.next {
		d.reply = ""
	}
}

// find looks through the list; it is needed for what may be in hand already, which is little.
func (h *hand) find(token string) *delivery {
	for d := h.ring.next; d != &h.ring; d = d.next {
		if d.token == token {
			return d
		}
	}
	return nil
}

// take moves up to limit queued deliveries to the caller, without waiting for more than are there. It waits while
// there is none, until the queue is closed (nil, nil), idle has passed (nil, nil) or ctx ends.
func (h *hand) take(ctx context.Context, limit int, idle time.Duration) ([]*delivery, error) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		h.mu.Lock()
		n := min(limit, len(h.queue))
		if n > 0 || h.closed {
			taken := slices.Clone(h.queue[:n])
			h.queue = slices.Delete(h.queue, 0, n)
			h.mu.Unlock()
			return taken, nil
		}
		h.mu.Unlock()
		select {
		case <-h.arrived:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close says that nothing more will arrive.
func (h *hand) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	signal(h.arrived)
}

// done reports whether nothing more will arrive and nothing is queued.
func (h *hand) done() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed && len(h.queue) == 0
}

// release lets settled deliveries go.
func (h *hand) release(deliveries ...*delivery) {
	h.mu.Lock()
	for _, d := range deliveries {
		if d.next == nil {
			continue // it was let go before
		}
		d.previous.next, d.next.previous = d.next, d.previous
		d.previous, d.next = nil, nil
		h.held--
		if d.era != h.era {
			h.older--
		}
	}
	h.mu.Unlock()
	signal(h.freed)
}

// room is how many more deliveries may be asked for.
func (h *hand) room() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, h.capacity-h.held)
}

// size is how many deliveries are in hand.
func (h *hand) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// replyOf is where the delivery is acknowledged now; empty: nowhere. See add and disown.
func (h *hand) replyOf(d *delivery) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.reply
}

// untouched gives the acknowledgement subjects of the deliveries that the server has heard nothing of since then, and
// counts them as touched at now.
func (h *hand) untouched(since, now time.Time) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var replies []string
	for d := h.ring.next; d != &h.ring; d = d.next {
		if d.reply != "" && d.touched.Before(since) {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// rest takes everything out of the hand, and gives its number and the acknowledgement subjects.
func (h *hand) rest() (held int, replies []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held = h.held
	for d := h.ring.next; d != &h.ring; d = d.next {
		if d.reply != "" {
			replies = append(replies, d.reply)
		}
	}
	h.ring.previous, h.ring.next = &h.ring, &h.ring
	h.held, h.older, h.queue = 0, 0, nil
	return held, replies
}

// signal leaves a token in a channel of capacity one, if there is none yet.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
