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
)

// Bounds of what is queued to be republished.
const (
	republishQueue  = 8192            // dropped events; what comes above that is not republished
	republishBytes  = 16 << 20        // of memory that they take, likewise
	republishEnd    = 2 * time.Second // how long a stopping worker continues with it
	republishReport = time.Minute     // at most one log line in that time about what was not republished
)

// republisher publishes copies of dropped events, for subscribers that keep them or send them by a cheaper
// way. It may lag, but never slows the worker: what it cannot take or publish is counted and left out.
type republisher struct {
	subject string // events go to <subject>.<category>
	letter  func(subject string, dropped *result.Result) *nats.Msg
	publish func(*nats.Msg) error
	log     *zap.Logger

	queue       chan result.Result
	bytes       atomic.Int64 // that the events in the queue take
	unpublished atomic.Int64
}

func newRepublisher(
	subject string,
	letter func(string, *result.Result) *nats.Msg,
	publish func(*nats.Msg) error,
	log *zap.Logger,
) *republisher {
	return &republisher{
		subject: subject, letter: letter, publish: publish, log: log,
		queue: make(chan result.Result, republishQueue),
	}
}

// add queues the dropped events of a batch, as far as there is room. A reply is no event.
func (r *republisher) add(batch []*result.Result) {
	for _, settled := range batch {
		if settled.Outcome != outcome.Dropped || settled.Reason == outcome.Reply {
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

// sizeOf is the memory that a queued event takes: its message, and what was decoded from the payload, which
// is never longer.
func sizeOf(s *result.Result) int64 { return s.Delivery.Cost + int64(len(s.Delivery.Data)) }

// start begins to republish; end waits until that is done, for republishEnd at most. Nothing may be added
// then.
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
	}
}

func (r *republisher) run(ctx context.Context) {
	var reported time.Time
	var reportedCount int64
	for ctx.Err() == nil {
		s, more := <-r.queue
		if !more {
			return
		}
		r.bytes.Add(-sizeOf(&s))
		err := r.publish(r.letter(r.subject, &s))
		if err != nil {
			r.unpublished.Add(1)
		}
		if count := r.unpublished.Load(); count > reportedCount && time.Since(reported) > republishReport {
			r.log.Warn("dropped events not republished", zap.Int64("count", count-reportedCount),
				zap.String("subject", r.subject), zap.Error(err))
			reported, reportedCount = time.Now(), count
		}
	}
}
