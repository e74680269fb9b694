package consume

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
	"notifier/internal/wait"
)

// Bounds of the republisher.
const (
	republishQueue  = 8192            // events
	republishBytes  = 16 << 20        // of memory
	republishEnd    = 2 * time.Second // bounds the republishing of a worker that stops
	republishReport = time.Minute     // between two log lines about events that were left out
)

// republisher publishes copies of dropped events, for subscribers that store them or send them elsewhere. It
// never slows the worker: events beyond its bounds are counted and left out. Without a connection it keeps
// the events in its own queue. In the queue of nats.go the copies would displace acknowledgements.
type republisher struct {
	subject   string // events go to <subject>.<category>
	letter    func(subject string, dropped *result.Result) *nats.Msg
	connected func() bool
	publish   func(*nats.Msg) error
	log       *zap.Logger

	queue       chan result.Result
	bytes       atomic.Int64 // that the events in the queue take
	unpublished atomic.Int64
	reported    int64     // of them, in log lines so far
	reportedAt  time.Time // the last line
}

func newRepublisher(
	subject string,
	letter func(string, *result.Result) *nats.Msg,
	connected func() bool,
	publish func(*nats.Msg) error,
	log *zap.Logger,
) *republisher {
	return &republisher{
		subject: subject, letter: letter, connected: connected, publish: publish, log: log,
		queue: make(chan result.Result, republishQueue),
	}
}

// add queues the dropped events of a batch, as far as there is room. It skips messages that the NATS server
// itself wrote into the stream (outcome.Reply).
func (r *republisher) add(batch []*result.Result) {
	for _, settled := range batch {
		if !outcome.IsDrop(settled.Outcome, settled.Reason) {
			continue
		}
		size := sizeOf(settled)
		if r.bytes.Add(size) <= republishBytes {
			select {
			case r.queue <- *settled:
				continue
			default:
			}
		}
		r.bytes.Add(-size)
		r.unpublished.Add(1)
	}
}

// sizeOf returns the bytes that a queued event keeps alive: its delivery, and its decoded text, which is at
// most as long as the payload.
func sizeOf(s *result.Result) int64 { return s.Delivery.Bytes + int64(len(s.Delivery.Message.Data)) }

// start publishes in the background. end waits until the queue is empty, but begins no publish after
// republishEnd. Nothing may be added once end was called.
func (r *republisher) start() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		close(r.queue)
		timer := time.AfterFunc(republishEnd, cancel)
		running.Wait()
		timer.Stop()
		cancel()
		r.unpublished.Add(int64(len(r.queue)))
		r.report(nil)
	}
}

func (r *republisher) run(ctx context.Context) {
	for ctx.Err() == nil {
		s, more := <-r.queue
		if !more {
			return
		}
		err := r.publishConnected(ctx, &s)
		r.bytes.Add(-sizeOf(&s))
		if err != nil {
			r.unpublished.Add(1)
		}
		if time.Since(r.reportedAt) > republishReport {
			r.report(err)
		}
	}
}

// publishConnected publishes one event as soon as there is a connection. It returns an error if ctx is done
// first.
func (r *republisher) publishConnected(ctx context.Context, dropped *result.Result) error {
	if !wait.Until(ctx, wait.ConnectionCheck, r.connected) {
		return nats.ErrDisconnected
	}
	return r.publish(r.letter(r.subject, dropped))
}

// report logs how many events were left out since the last line, if any. err is the latest failure, or nil.
func (r *republisher) report(err error) {
	count := r.unpublished.Load()
	if count == r.reported {
		return
	}
	r.log.Warn("dropped events not republished", zap.Int64("count", count-r.reported),
		zap.String("subject", r.subject), zap.Error(err))
	r.reported, r.reportedAt = count, time.Now()
}
