package consume

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"notifier/internal/event"
)

// Core names the subject and the queue group that a worker reads without JetStream: at most once.
type Core struct {
	Connection *nats.Conn
	Why        func() error // why there is no connection; nil: as JetStream.Why
	Subject    string
	Queue      string
	DeadLetter string // dead letters go to <DeadLetter>.<category>, to whoever listens
}

// coreBuffer bounds what nats.go keeps while the worker has no room; what exceeds it is lost and counted.
const (
	coreBufferMessages = 65_536
	coreBufferBytes    = 64 << 20
	coreReportEvery    = time.Second
	coreDrainWait      = 5 * time.Second
)

// coreSource reads a queue group. There is nothing to acknowledge and nothing to return.
type coreSource struct {
	Core
	inflight     *inflight
	availability *availability
	log          *zap.Logger

	isBound   atomic.Bool
	lostSoFar atomic.Int64
}

func (s *coreSource) bound() bool                             { return s.isBound.Load() }
func (s *coreSource) lost() int64                             { return s.lostSoFar.Load() }
func (s *coreSource) pending(context.Context) (uint64, error) { return 0, nil }
func (s *coreSource) keepAlive(context.Context)               {}

// run reads until ctx ends, and then takes what has arrived. It fails when the connection is closed for good.
func (s *coreSource) run(ctx context.Context) error {
	subscription, err := s.Connection.QueueSubscribe(s.Subject, s.Queue, func(message *nats.Msg) { s.receive(ctx, message) })
	if err != nil {
		return fmt.Errorf("nats: cannot subscribe to %s: %w", s.Subject, err)
	}
	if err := subscription.SetPendingLimits(coreBufferMessages, coreBufferBytes); err != nil {
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
	for s.inflight.room() == 0 && ctx.Err() == nil {
		select {
		case <-s.inflight.freed:
		case <-ctx.Done():
		}
	}
	now := time.Now()
	s.inflight.add(&delivery{
		Message: event.Message{
			Subject: message.Subject, Header: message.Header, Data: message.Data,
			FallbackID: nuid.Next(), Published: now,
		},
		token:   nuid.Next(),
		touched: now,
	})
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
	if count > 0 {
		s.lose(count, "they were held when the worker ended")
	}
	return nil
}

func (s *coreSource) lose(count int, reason string) {
	s.lostSoFar.Add(int64(count))
	s.log.Warn("events lost", zap.Int("count", count), zap.String("reason", reason+", and NATS_MODE=core keeps nothing"))
}

func (s *coreSource) publishDeadLetters(_ context.Context, letters []*nats.Msg) error {
	for _, letter := range letters {
		if err := s.Connection.PublishMsg(letter); err != nil {
			return fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return nil
}
