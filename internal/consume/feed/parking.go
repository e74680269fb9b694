package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/term"
)

// Parking gives events that cannot be posted for a while back to the server, so that they take no room here. The server counts
// them in the consumer's MaxAckPending for as long as they are parked, and delivers nothing to any replica when that is
// reached. So no more than half of it is used; what is beyond that stays in flight, until pulling stops.
//
// All replicas park at the same time when they meet the same flood, and each knows of the others' only what the server reports.
// So each uses a small part of what is left by the server's last figure, and asks again.

// Bounds of parking.
const (
	parkingFigure  = time.Second            // how old the server's figure may be when an event is parked
	parkingPart    = maxAckPendingReplicas  // one in so many of what is left is parked by one figure
	parkingTimeout = 500 * time.Millisecond // for asking for it
)

// parking is how much of the consumer's MaxAckPending is used, as far as it is known.
type parking struct {
	// answering is held while a reply is sent that must not come after a delivery was parked, and while one is parked.
	answering sync.Mutex

	refreshing background

	mu        sync.Mutex
	bound     bool
	forbidden string    // why nothing may be parked, whatever the figure
	most      int       // half of MaxAckPending
	pending   int       // NumAckPending of the server, over all replicas
	parked    int       // by this worker since the server was asked
	asked     time.Time // when the server was asked last
	failed    error     // what it has answered then; nil: pending
	wanted    bool      // the last call of park was refused for want of room
}

// bind begins with a consumer that was looked up. capacity is how many deliveries one replica holds at most.
func (p *parking) bind(info *jetstream.ConsumerInfo, capacity int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound, p.forbidden = true, ""
	if info.Config.MaxDeliver > 0 {
		p.forbidden = fmt.Sprintf("the consumer delivers an event %s at most (max_deliver)", term.Count(info.Config.MaxDeliver, "time"))
	}
	p.most = info.Config.MaxAckPending / 2
	if info.Config.MaxAckPending <= 0 { // the consumer has no bound: that of one of ours
		p.most = maxAckPendingReplicas * capacity / 2
	}
	p.pending, p.parked, p.asked, p.failed = info.NumAckPending, 0, time.Now(), nil
	p.wanted = false
}

// unbind waits until nothing is asked any more.
func (p *parking) unbind() {
	p.mu.Lock()
	p.bound = false
	p.mu.Unlock()
	p.refreshing.wait()
}

// left is how many more may be parked by the server's last figure. The caller holds p.mu.
func (p *parking) left() int {
	room := p.most - p.pending
	return min(room, max(1, room/parkingPart)) - p.parked
}

// full is why nothing can be parked now; empty: something can. The caller holds p.mu.
func (p *parking) full() string {
	switch {
	case p.forbidden != "":
		return p.forbidden
	case p.failed != nil:
		return "the consumer's state is not known: " + p.failed.Error()
	case p.left() < 1:
		return fmt.Sprintf("%s not acknowledged yet, and no more than %d of the consumer's max_ack_pending are used so", term.CountAre(p.pending+p.parked, "event"), p.most)
	}
	return ""
}

// outdated reports whether the server is to be asked again, and notes that it is: once a second, and at once where a figure is
// used up that has left much. The caller holds p.mu.
func (p *parking) outdated() bool {
	now := time.Now()
	usedUp := p.failed == nil && p.left() < 1 && p.most-p.pending >= parkingPart
	if !p.bound || p.forbidden != "" || (now.Sub(p.asked) < parkingFigure && !usedUp) {
		return false
	}
	p.asked = now
	return true
}

// answered takes over the server's answer.
func (p *parking) answered(pending int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed = err; err == nil {
		p.pending, p.parked = pending, 0
	}
}

// take counts an event that is about to be parked; false: it may not be.
func (p *parking) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted = !p.bound || p.full() != ""; p.wanted {
		return false
	}
	p.parked++
	return true
}

// handBack gives an admitted event back to the server for a while, so that it holds no room here: its admission stays in Redis, and
// when it is delivered again it goes on without a charge. It reports whether the event is no longer in flight; false: it may not be
// parked, and stays. Now and then it asks the server how much of the consumer's MaxAckPending is used, for half a second at most
// and once a second where there is no answer.
func (s *Feed) handBack(d *Delivery, delay time.Duration) bool {
	s.parking.mu.Lock()
	outdated := s.parking.outdated()
	s.parking.mu.Unlock()
	if outdated {
		s.refreshParking()
	}
	s.parking.answering.Lock()
	defer s.parking.answering.Unlock()
	reply := s.inflight.replyOf(d)
	if reply == "" || !s.Connection.IsConnected() || !s.parking.take() {
		return false
	}
	s.inflight.release(d)
	// A connection that breaks here loses this at worst: the event is delivered again after AckWait, earlier or later than asked.
	_ = s.Connection.Publish(reply, fmt.Appendf(nil, `%s {"delay":%d}`, ackRetry, max(delay, 0)))
	return true
}

// refreshParking asks the server how many deliveries are not acknowledged, over all replicas.
func (s *Feed) refreshParking() {
	ctx, cancel := context.WithTimeout(context.Background(), parkingTimeout)
	defer cancel()
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	if err != nil {
		s.parking.answered(0, err)
		return
	}
	s.parking.answered(consumer.CachedInfo().NumAckPending, nil)
}

// WhyNotLater is why Delivery.Later hands nothing back at the moment; empty: more can, or nobody has tried. It does not wait for the server: where its
// figure is old, it is asked for in the background,
// so that the reason goes when there is room again.
func (s *Feed) WhyNotLater() string {
	s.parking.mu.Lock()
	defer s.parking.mu.Unlock()
	if !s.parking.wanted {
		return ""
	}
	if s.parking.outdated() {
		s.parking.refreshing.start(s.refreshParking)
	}
	return s.parking.full()
}
