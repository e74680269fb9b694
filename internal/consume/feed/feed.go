package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/wait"
)

// What a consumer is created with. One that exists is used as it is.
const (
	ackWait = 20 * time.Second // a crashed worker's events are redelivered after at most that
	// Deliveries that all replicas together may hold: enough for 16 full replicas.
	maxAckPendingReplicas = 16
	apiTimeout            = 5 * time.Second // for what changes something
	lookUpTimeout         = time.Second     // for a question: after an election another is answered at once
)

// bindRetry is the pause between two attempts to reach what a worker starts with.
var bindRetry = 500 * time.Millisecond

// DefaultBudget is for Settings.Budget, in bytes.
const DefaultBudget = 12 << 20

// Settings name the stream and the durable consumer that a worker reads, and bound what it holds.
type Settings struct {
	Connection Connection
	Stream     string // created with Subject if it is absent, never altered
	Consumer   string // durable, shared by all replicas; created if it is absent, never altered
	Subject    string // what to read
	Replicas   int    // of a stream that is created; 0: three in a cluster of three servers or more, else one

	Capacity    int   // most deliveries in flight, 1 or more
	Budget      int64 // most bytes of them, by their Cost; 1 MiB or more
	MostPayload int   // longer payloads are cut to what a dead letter shows; 0: none is

	MayFetch func() bool               // nothing is fetched while it returns false
	Bound    func(ctx context.Context) // called each time a consumer is bound; it may not wait. It may be nil
	Tracker  *availability.Tracker
	Log      *zap.Logger
}

// ErrUnsuitable marks what waiting does not fix: JetStream that is off, a consumer that cannot be used.
var ErrUnsuitable = errors.New("this NATS cannot be used")

// Feed reads a durable pull consumer. Make it with New, run it once.
type Feed struct {
	Settings
	js        jetstream.JetStream
	inflight  *inflight
	allowance allowance

	// answering is held while a report of progress is sent, which would end the delay of an event that was
	// handed back, and while one is handed back.
	answering sync.Mutex

	quiet time.Duration // finishQuiet, but in tests

	isBound  atomic.Bool
	pending  atomic.Uint64 // events after the one that was delivered last
	ackWait  atomic.Int64  // the consumer's, a time.Duration; 0 before it is bound
	wasBound bool          // once or more
	created  time.Time     // when the stream was created that this was bound to last
}

// New makes a Feed and asks no server.
func New(settings Settings) (*Feed, error) {
	js, err := jetstream.New(settings.Connection.Conn, jetstream.WithDefaultTimeout(lookUpTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &Feed{
		Settings: settings,
		js:       js,
		inflight: newInflight(settings.Capacity, settings.Budget),
		quiet:    finishQuiet,
	}, nil
}

// Run reads until ctx ends. It binds again when the stream or the consumer is lost, and fails only on what
// waiting does not fix: ErrUnsuitable, or a connection that is closed for good. After it nothing more
// arrives.
func (s *Feed) Run(ctx context.Context) error {
	defer s.inflight.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what Bound has started ends with Run, also when the connection is closed for good
	return s.run(ctx)
}

// Take moves up to limit deliveries that have arrived to the caller, without waiting for more than there are.
// It waits while there are none: until nothing more will arrive (nil, nil; see Done), idle has passed (nil,
// nil) or ctx ends.
func (s *Feed) Take(ctx context.Context, limit int, idle time.Duration) ([]*Delivery, error) {
	return s.inflight.take(ctx, limit, idle)
}

// Gather waits until so many deliveries have arrived that a batch is worth its cost, but for patience at
// most. It returns early when there is no room for more, nothing more will arrive, or ctx ends.
func (s *Feed) Gather(ctx context.Context, wanted int, patience time.Duration) {
	s.inflight.gather(ctx, wanted, patience)
}

// Behind reports whether the stream has more for the consumer than is in flight here.
func (s *Feed) Behind() bool { return s.pending.Load() > uint64(s.inflight.size()) }

// Done reports whether nothing more will arrive and all that has arrived was taken.
func (s *Feed) Done() bool { return s.inflight.done() }

// Held is how many deliveries are in flight.
func (s *Feed) Held() int { return s.inflight.size() }

// Full reports whether nothing more can be fetched for want of room.
func (s *Feed) Full() bool { return s.inflight.full() }

// IsBound reports whether a consumer is being read.
func (s *Feed) IsBound() bool { return s.isBound.Load() }

// Pending is how many events are in the stream that no replica has fetched yet. It asks NATS.
func (s *Feed) Pending(ctx context.Context) (uint64, error) {
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	if err != nil {
		return 0, fmt.Errorf("nats: consumer %s of stream %s: %w", s.Consumer, s.Stream, err)
	}
	return consumer.CachedInfo().NumPending, nil
}

// HandBackAll ends all that is in flight: the server delivers it again at once, to another replica or to the
// next start of this one. Run has ended.
func (s *Feed) HandBackAll() error {
	for _, reply := range s.inflight.drain() {
		if err := s.Connection.Publish(reply, ackRetry); err != nil {
			return fmt.Errorf("nats: return for redelivery: %w", err)
		}
	}
	return nil
}

// KeepAlive reports to the server that what is in flight is in progress, four times in the time after which
// it would redeliver it, until ctx ends.
func (s *Feed) KeepAlive(ctx context.Context) {
	for {
		ackWait := time.Duration(s.ackWait.Load())
		if !wait.For(ctx, keepAliveCheck(ackWait)) {
			return
		}
		s.touch(time.Now(), ackWait/4)
	}
}

// keepAliveCheck is how often the deliveries in flight are searched for old ones: ten times in the time after
// which one is reported, and at least once a second, as another consumer may be less patient.
func keepAliveCheck(ackWait time.Duration) time.Duration {
	return min(max(ackWait/40, 100*time.Millisecond), time.Second)
}

// touch reports progress of what the server has heard nothing of for so long.
func (s *Feed) touch(now time.Time, quiet time.Duration) {
	s.answering.Lock()
	defer s.answering.Unlock()
	for _, reply := range s.inflight.untouched(now.Add(-quiet), now) {
		_ = s.Connection.Publish(reply, ackProgress) // an error means a closed connection: run ends
	}
}

func (s *Feed) run(ctx context.Context) error {
	for {
		info, err := s.bind(ctx)
		if err != nil {
			return err
		}
		if info == nil {
			return nil // ctx ended
		}
		s.wasBound = true
		if s.Bound != nil {
			s.Bound(ctx)
		}
		s.ackWait.Store(int64(info.Config.AckWait))
		s.allowance.bind(info, s.inflight.capacity)
		s.isBound.Store(true)
		err = s.read(ctx, info)
		s.isBound.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		s.Tracker.Lost(availability.Consumer, err)
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil
		}
	}
}

// read pulls from a consumer that was bound.
func (s *Feed) read(ctx context.Context, info *jetstream.ConsumerInfo) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.watchAllowance(ctx) })
	defer watching.Wait()
	defer cancel()
	return s.newPull(info).run(ctx)
}

// bind waits until stream and consumer exist and fit; nil, nil when ctx ends before.
func (s *Feed) bind(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	for {
		if s.Connection.IsClosed() {
			return nil, nats.ErrConnectionClosed
		}
		if !s.Connection.IsConnected() {
			s.Tracker.Lost(availability.NATS, s.Connection.Down())
		} else {
			s.Tracker.Recovered(availability.NATS)
			info, err := s.lookUp(ctx)
			if err == nil {
				s.Tracker.Recovered(availability.Consumer)
				return info, nil
			}
			if errors.Is(err, ErrUnsuitable) {
				return nil, err
			}
			if ctx.Err() == nil {
				s.Tracker.Lost(availability.Consumer, err)
			}
		}
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil, nil
		}
	}
}
