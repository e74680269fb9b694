package consume

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"notifier/internal/outcome"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

// Bounds of what waits to be republished.
const (
	archiveQueue = 8192            // dropped events; what comes above that is not republished
	archiveBytes = 16 << 20        // of their payloads, likewise
	archiveEnd   = 2 * time.Second // how long a stopping worker goes on with it
	archiveTell  = time.Minute     // the log says at most so often that something was not republished
)

// archive republishes dropped events, for whoever keeps them or sends them by a cheaper way. It may lag, but never slows
// the worker: what it cannot take or publish is counted and given up.
type archive struct {
	subject string // events go to <subject>.<category>
	letter  func(subject string, s *Settled) *nats.Msg
	publish func(*nats.Msg) error
	log     *zap.Logger

	queue       chan Settled
	bytes       atomic.Int64 // of the payloads in the queue
	unpublished atomic.Int64
}

func newArchive(subject string, letter func(string, *Settled) *nats.Msg, publish func(*nats.Msg) error, log *zap.Logger) *archive {
	return &archive{subject: subject, letter: letter, publish: publish, log: log, queue: make(chan Settled, archiveQueue)}
}

// add takes the dropped ones of a batch over, as far as there is room.
func (a *archive) add(batch []Settled) {
	for i := range batch {
		if batch[i].Outcome != outcome.Dropped {
			continue
		}
		size := int64(len(batch[i].delivery.Data))
		if a.bytes.Add(size) <= archiveBytes {
			select {
			case a.queue <- batch[i]:
				continue
			default:
			}
		}
		a.bytes.Add(-size)
		a.unpublished.Add(1)
	}
}

// start begins to republish; end waits until that is done, for archiveEnd at most. Nothing may be added then.
func (a *archive) start() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx) })
	return func() {
		close(a.queue)
		timer := time.AfterFunc(archiveEnd, cancel)
		running.Wait()
		timer.Stop()
		cancel()
		a.unpublished.Add(int64(len(a.queue)))
	}
}

func (a *archive) run(ctx context.Context) {
	var told time.Time
	var toldCount int64
	for ctx.Err() == nil {
		s, more := <-a.queue
		if !more {
			return
		}
		a.bytes.Add(-int64(len(s.delivery.Data)))
		err := a.publish(a.letter(a.subject, &s))
		if err != nil {
			a.unpublished.Add(1)
		}
		if count := a.unpublished.Load(); count > toldCount && time.Since(told) > archiveTell {
			a.log.Warn("dropped events not republished", zap.Int64("count", count-toldCount), zap.String("subject", a.subject), zap.Error(err))
			told, toldCount = time.Now(), count
		}
	}
}
