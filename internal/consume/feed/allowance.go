package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/term"
)

// An event that cannot be posted for some time is handed back to the server, so that it takes no room here.
// The server counts it in the consumer's MaxAckPending until it has ended, and delivers nothing to any
// replica when that is reached. So no more than half of it is used; what is beyond that stays in flight,
// until fetching stops for want of room.
//
// All replicas hand back at the same time when they meet the same flood, and each knows of the others' only
// what the server reports. So each takes a small part of what is left by the server's latest figure, and asks
// again: at once while much is left, else a second later.

// allowancePart: one in so many of what is left may be handed back per figure.
const allowancePart = maxAckPendingReplicas

// allowancePeriod is how often the server is asked while events are handed back.
var allowancePeriod = time.Second

// allowance is how many more events may be handed back.
type allowance struct {
	mu        sync.Mutex
	forbidden string // why none may be, whatever the figure
	most      int    // half of MaxAckPending
	pending   int    // the figure: deliveries that are not acknowledged, over all replicas
	unknown   error  // why there is no figure
	handed    int    // how many were handed back by it
	declined  bool   // one was not, and since then there was no room
}

// errNotAsked means that no figure was needed lately: the last one does not count.
var errNotAsked = errors.New("the server was not asked")

// bind begins with a consumer that was looked up. capacity is how many deliveries one replica holds at most.
func (a *allowance) bind(info *jetstream.ConsumerInfo, capacity int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forbidden = ""
	if info.Config.MaxDeliver > 0 {
		times := term.Count(info.Config.MaxDeliver, "time")
		a.forbidden = fmt.Sprintf("the consumer delivers an event %s at most (max_deliver)", times)
	}
	a.most = info.Config.MaxAckPending / 2
	if info.Config.MaxAckPending <= 0 { // the consumer has no bound: that of one of ours
		a.most = maxAckPendingReplicas * capacity / 2
	}
	a.unknown, a.handed, a.declined = errNotAsked, 0, false
}

// update takes over the server's answer.
func (a *allowance) update(pending int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending, a.unknown, a.handed = pending, err, 0
}

// exhausted is why nothing can be handed back now; empty: something can. mu is held.
func (a *allowance) exhausted() string {
	switch {
	case a.forbidden != "":
		return a.forbidden
	case a.unknown != nil:
		return "the consumer's state is not known: " + a.unknown.Error()
	case a.handed < a.part():
		return ""
	}
	used := term.CountAre(a.pending+a.handed, "event")
	return fmt.Sprintf(
		"%s not acknowledged yet, and no more than %d of the consumer's max_ack_pending are used so",
		used, a.most)
}

// part is how many events may be handed back by the figure. mu is held.
func (a *allowance) part() int {
	left := a.most - a.pending
	return min(left, max(1, left/allowancePart))
}

// take counts an event that is about to be handed back; false: it may not be.
func (a *allowance) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.declined = a.exhausted() != ""; a.declined {
		return false
	}
	a.handed++
	return true
}

// needsFigure reports whether the server is to be asked before an event can be handed back: the first time
// after a quiet time, and when a figure is used up that has left much.
func (a *allowance) needsFigure() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	usedUp := a.unknown == nil && a.part() > 1 && a.handed >= a.part()
	return a.forbidden == "" && (usedUp || errors.Is(a.unknown, errNotAsked))
}

// inUse reports whether the figure was used. If not, it does not count any longer.
func (a *allowance) inUse() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := a.forbidden == "" && (a.handed > 0 || a.declined)
	if !used {
		a.unknown = errNotAsked
	}
	a.declined = a.declined && a.exhausted() != ""
	return used
}

// watchAllowance keeps the figure up to date while events are handed back, until ctx ends.
func (s *Feed) watchAllowance(ctx context.Context) {
	tick := time.NewTicker(allowancePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.allowance.inUse() {
				s.lookUpAllowance(ctx)
			}
		}
	}
}

// lookUpAllowance asks the server, for half a second at most.
func (s *Feed) lookUpAllowance(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout/2)
	defer cancel()
	pending := 0
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	if err == nil {
		pending = consumer.CachedInfo().NumAckPending
	}
	s.allowance.update(pending, err)
}

// handBack gives an event back to the server for a delay, so that it holds no room here. Whatever was
// admitted stays so in Redis, and goes on without a charge when it is delivered again. It reports whether the
// event is no longer in flight. Now and then it waits for the server's figure.
func (s *Feed) handBack(d *Delivery, delay time.Duration) bool {
	if !s.IsBound() {
		return false
	}
	ended := s.tryHandBack(d, delay)
	if !ended && s.allowance.needsFigure() {
		s.lookUpAllowance(context.Background())
		ended = s.tryHandBack(d, delay)
	}
	return ended
}

// tryHandBack is handBack by the figure that is known.
func (s *Feed) tryHandBack(d *Delivery, delay time.Duration) bool {
	s.answering.Lock()
	defer s.answering.Unlock()
	reply := s.inflight.replyOf(d)
	if reply == "" || !s.Connection.IsConnected() || !s.allowance.take() {
		return false
	}
	s.inflight.release(d)
	// A connection that breaks here loses this at worst: the event is delivered again after AckWait, earlier
	// or later than asked.
	_ = s.Connection.Publish(reply, fmt.Appendf(nil, `%s {"delay":%d}`, ackRetry, max(delay, 0)))
	return true
}

// WhyNotLater is why Delivery.Later hands nothing back at the moment; empty: more can be, or none has
// been declined. It does not wait for the server, and the reason goes when there is room again.
func (s *Feed) WhyNotLater() string {
	s.allowance.mu.Lock()
	defer s.allowance.mu.Unlock()
	if !s.allowance.declined {
		return ""
	}
	return s.allowance.exhausted()
}
