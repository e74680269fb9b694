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
	Subject    string
	Queue      string
	DeadLetter string // dead letters go to <DeadLetter>.<category>, to whoever listens
}

// coreBuffer bounds what nats.go keeps while the hand is full; what comes above it is lost and counted.
const (
	coreBufferMessages = 65_536
	coreBufferBytes    = 64 << 20
	coreReportEvery    = time.Second
	coreDrainWait      = 5 * time.Second
)

// coreSource reads a queue group. There is nothing to acknowledge and nothing to hand back.
type coreSource struct {
	Core
	hand  *hand
	waits *waits
	log   *zap.Logger

	isBound   atomic.Bool
	lostSoFar atomic.Int64
}

func (s *coreSource) bound() bool                             { return s.isBound.Load() }
func (s *coreSource) lost() int64                             { return s.lostSoFar.Load() }
func (s *coreSource) pending(context.Context) (uint64, error) { return 0, nil }
func (s *coreSource) keepAlive(context.Context)               {}

func (s *coreSource) run(ctx context.Context) error {
	subscription, err := s.Connection.QueueSubscribe(s.Subject, s.Queue, func(message *nats.Msg) {
		for s.hand.room() == 0 { // nats.go buffers meanwhile
			select {
			case <-s.hand.freed:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				break // drain: what has arrived is taken in, room or not
			}
		}
		now := time.Now()
		s.hand.add(&delivery{
			Message: event.Message{
				Subject: message.Subject, Header: message.Header, Data: message.Data,
				FallbackID: nuid.Next(), Published: now,
			},
			token:   nuid.Next(),
			touched: now,
		})
	})
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
	reported := 0
	for {
		s.report()
		if !s.isBound.Load() && s.Connection.IsConnected() && s.Connection.FlushTimeout(coreReportEvery) == nil {
			s.isBound.Store(true) // the server knows of the subscription: what is published from now on comes here
		}
		if lost, err := subscription.Dropped(); err == nil && lost > reported {
			s.lose(lost-reported, "they came faster than they could be handled")
			reported = lost
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

// report tells when the connection goes and comes.
func (s *coreSource) report() {
	if s.Connection.IsConnected() {
		s.waits.end(waitNATS)
	} else {
		s.waits.begin(waitNATS, unconnected(s.Connection))
	}
}

func (s *coreSource) acknowledge([]*delivery) error     { return nil }
func (s *coreSource) terminate(*delivery, string) error { return nil }

// handBack has nobody to hand back to.
func (s *coreSource) handBack(held int, _ []string) error {
	if held > 0 {
		s.lose(held, "they were held when the worker ended")
	}
	return nil
}

func (s *coreSource) lose(count int, reason string) {
	s.lostSoFar.Add(int64(count))
	s.log.Warn("events lost", zap.Int("count", count), zap.String("reason", reason+", and NATS_MODE=core keeps nothing"))
}

func (s *coreSource) bury(_ context.Context, letters []*nats.Msg) error {
	for _, letter := range letters {
		if err := s.Connection.PublishMsg(letter); err != nil {
			return fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return nil
}
