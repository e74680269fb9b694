package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// allowancePeriod bounds the age of the server's figure, and how often it is looked up while little is left.
var allowancePeriod = time.Second

// allowance bounds the events that are handed back for later. The server counts them in the consumer's
// MaxAckPending until they have ended, and delivers nothing to any worker once that is reached. So half of
// it stays free.
//
// All workers hand back at the same time when they meet the same flood, and each knows of the others only
// from the server's count. So each takes a small share of the rest by the last count, and then looks again.
type allowance struct {
	mu     sync.Mutex // held during a lookup, too
	limit  int        // half of MaxAckPending; 0 if nothing may be handed back
	share  int        // of the last count, and not used yet
	much   bool       // the last count had left more than one event to this worker
	looked time.Time  // time of the last count
}

// bind begins with a consumer that was looked up. With max_deliver each hand-back would use up a delivery.
func (a *allowance) bind(config jetstream.ConsumerConfig, capacity int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit, a.share, a.looked = config.MaxAckPending/2, 0, time.Time{}
	if config.MaxAckPending <= 0 {
		a.limit = maxAckPendingReplicas * capacity / 2
	}
	if config.MaxDeliver > 0 {
		a.limit = 0
	}
}

// isOutdated reports whether an event may be handed back only after another lookup: if the last count is old,
// and at once if a large share is used up.
func (a *allowance) isOutdated() bool {
	isOld := time.Since(a.looked) >= allowancePeriod
	return a.limit > 0 && (isOld || (a.share == 0 && a.much))
}

// update takes this worker's share by the number of events that are unacknowledged over all workers.
func (a *allowance) update(unacknowledged int) {
	left := max(0, a.limit-unacknowledged)
	a.share = min(left, max(1, left/maxAckPendingReplicas))
	a.much = a.share > 1
	a.looked = time.Now()
}

// take counts an event that is about to be handed back, and reports whether it may be.
func (a *allowance) take() bool {
	if a.share == 0 {
		return false
	}
	a.share--
	return true
}

// mayHandBack reports whether an event may be handed back, and counts it. Now and then it waits for the
// server.
func (s *Feed) mayHandBack() bool {
	a := &s.allowance
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOutdated() {
		a.update(s.unacknowledged(a.limit))
	}
	return a.take()
}

// handBackTimeout is short, because posts to other channels wait meanwhile.
const handBackTimeout = 500 * time.Millisecond

// unacknowledged looks up the number of unacknowledged events. It waits for half a second at most, and then
// returns the limit.
func (s *Feed) unacknowledged(limit int) int {
	ctx, cancel := context.WithTimeout(context.Background(), handBackTimeout)
	defer cancel()
	consumer, err := s.js.Consumer(ctx, s.settings.Stream, s.settings.Consumer)
	if err != nil {
		return limit
	}
	return consumer.CachedInfo().NumAckPending
}

// Later hands the event back to the server, which delivers it again after the delay, to any worker and
// marked as redelivered. An admission stays in Redis, so the event is not charged again. Later reports
// whether the delivery has ended; if not, the server may not keep the event now.
func (d *Delivery) Later(delay time.Duration) bool {
	s := d.feed
	if !s.IsBound() || !s.settings.Connection.IsConnected() || len(s.inflight.repliesOf(d)) == 0 {
		return false
	}
	if !s.mayHandBack() {
		return false
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	replies := s.inflight.repliesOf(d)
	if len(replies) == 0 || !s.settings.Connection.IsConnected() {
		return false
	}
	s.inflight.release(d)
	// If the connection breaks here, the event is delivered again after AckWait and not after the delay.
	_ = s.settings.Connection.Publish(replies[0], fmt.Appendf(nil, `%s {"delay":%d}`, ackRetry, max(delay, 0)))
	return true
}
