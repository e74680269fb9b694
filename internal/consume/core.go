package consume

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"
)

// Core names the subject and the queue group that a worker reads without JetStream: at most once.
type Core struct {
	Connection *nats.Conn
	Why        func() error // why there is no connection; nil: as JetStream.Why
	Subject    string
	Queue      string
	DeadLetter string // dead letters go to <DeadLetter>.<category>, to whoever listens
}

// Half of the budget is for what nats.go keeps while the worker has no room; what exceeds it is lost and counted.
const (
	coreBufferShare    = 2
	coreBufferMessages = 65_536 // of them, at most
	corePerMessage     = 256    // bytes that nats.go takes for a message in addition to its own
	coreReportEvery    = time.Second
	coreDrainWait      = 5 * time.Second
)

// coreSource reads a queue group. There is nothing to acknowledge and nothing to return.
type coreSource struct {
	Core
	inflight     *inflight
	availability *availability
	log          *zap.Logger
	mostPayload  int // longer payloads are cut; see keep

	isBound   atomic.Bool
	lostSoFar atomic.Int64
	unparked  atomic.Int64 // lost because they could not be parked, and not logged yet
}

func (s *coreSource) bound() bool                             { return s.isBound.Load() }
func (s *coreSource) lost() int64                             { return s.lostSoFar.Load() }
func (s *coreSource) pending(context.Context) (uint64, error) { return 0, nil }
func (s *coreSource) keepAlive(context.Context)               {}
func (s *coreSource) parkingExhausted() string                { return "" }

// run reads until ctx ends, and then takes what has arrived. It fails when the connection is closed for good.
func (s *coreSource) run(ctx context.Context) error {
	subscription, err := s.Connection.QueueSubscribe(s.Subject, s.Queue, func(message *nats.Msg) { s.receive(ctx, message) })
	if err != nil {
		return fmt.Errorf("nats: cannot subscribe to %s: %w", s.Subject, err)
	}
	buffer := int(s.inflight.budget / coreBufferShare)
	if err := subscription.SetPendingLimits(min(coreBufferMessages, buffer/corePerMessage), buffer); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	defer s.isBound.Store(false)
	closed := make(chan struct{})
	subscription.SetClosedHandler(func(string) { close(closed) })
	ticker := time.NewTicker(coreReportEvery)
	defer ticker.Stop()
	overflowed := 0
	for {
		s.watchConnection()
		s.reportUnparked()
		if dropped, err := subscription.Dropped(); err == nil && dropped > overflowed {
			s.lose(dropped-overflowed, "they arrived faster than they could be handled")
			overflowed = dropped
		}
		if s.Connection.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-ctx.Done():
			if err := subscription.Drain(); err == nil {
				select {
				case <-closed:
				case <-time.After(coreDrainWait):
				}
			}
			return nil
		case <-ticker.C:
		}
	}
}

// receive waits for room, while nats.go buffers, and adds the message. When ctx has ended it takes what has arrived, room or
// not: the subscription drains.
func (s *coreSource) receive(ctx context.Context, message *nats.Msg) {
	kept, cost := keep(message, s.mostPayload)
	for !s.hasRoom(cost) && ctx.Err() == nil {
		select {
		case <-s.inflight.freed:
		case <-ctx.Done():
		}
	}
	now := time.Now()
	kept.FallbackID, kept.Published = nuid.Next(), now
	s.inflight.add(&delivery{Message: kept, token: nuid.Next(), cost: cost, touched: now})
}

// hasRoom reports whether a message fits into what nats.go's buffer leaves of the budget. One that is larger than all of that
// fits when nothing else is in flight.
func (s *coreSource) hasRoom(cost int64) bool {
	buffer := s.inflight.budget / coreBufferShare
	return s.inflight.room() > 0 && s.inflight.roomBytes()-buffer >= min(cost, s.inflight.budget-buffer)
}

// watchConnection reports whether there is a connection, and notes when the server knows of the subscription: what is
// published from then on arrives here.
func (s *coreSource) watchConnection() {
	if !s.Connection.IsConnected() {
		s.availability.lost(natsConnection, unconnected(s.Connection, s.Why))
		return
	}
	s.availability.recovered(natsConnection)
	if !s.isBound.Load() && s.Connection.FlushTimeout(coreReportEvery) == nil {
		s.isBound.Store(true)
	}
}

func (s *coreSource) acknowledge([]*delivery) error     { return nil }
func (s *coreSource) terminate(*delivery, string) error { return nil }

// returnUnsettled has nowhere to return events to.
func (s *coreSource) returnUnsettled(count int, _ []string) error {
	s.reportUnparked()
	if count > 0 {
		s.lose(count, "they were held when the worker ended")
	}
	return nil
}

// park loses the event: there is no server that keeps it.
func (s *coreSource) park(d *delivery, _ time.Duration) bool {
	s.inflight.release(d)
	s.lostSoFar.Add(1)
	s.unparked.Add(1)
	return true
}

// keepingPark is the park of a source where a server keeps what is given back; nil in core mode, where it would be lost.
func keepingPark(s source) func(*delivery, time.Duration) bool {
	if _, core := s.(*coreSource); core {
		return nil
	}
	return s.park
}

// reportUnparked logs what park has lost since the last time.
func (s *coreSource) reportUnparked() {
	if count := int(s.unparked.Swap(0)); count > 0 {
		s.logLost(count, "its channel is behind and its share is full")
	}
}

func (s *coreSource) lose(count int, reason string) {
	s.lostSoFar.Add(int64(count))
	s.logLost(count, reason)
}

func (s *coreSource) logLost(count int, reason string) {
	s.log.Warn("events lost", zap.Int("count", count), zap.String("reason", reason+", and NATS_MODE=core keeps nothing"))
}

func (s *coreSource) publishDeadLetters(_ context.Context, letters []*nats.Msg) []storedLetter {
	results := make([]storedLetter, len(letters))
	for i, letter := range letters {
		if err := s.Connection.PublishMsg(letter); err != nil {
			results[i].err = fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return results
}
