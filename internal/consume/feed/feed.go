// Package feed reads events from NATS JetStream, and reports to the server how each of them ended.
//
// A Feed reads one durable pull consumer, which all workers share. A single goroutine reads a single
// subscription, so events arrive in the order of the stream. Everything that has arrived is in flight until
// it ends: a bounded number of deliveries, within a budget of bytes, reported to the server as in progress
// four times in each AckWait. The feed requests nothing that it has no room for, so memory stays bounded
// during every outage.
//
// A Delivery ends exactly once: with Ack, Term or Later, or with HandBackAll at the end of a worker. An
// event that the server delivers again while it is held joins the held delivery.
//
// The feed makes pull requests itself, because nats.go does not fit for three reasons. It takes an empty
// message with a Status header for a control message, so a publisher could stop a worker; here a message
// is known by its acknowledgement subject, which only the server sets. It buffers messages that are not
// kept alive, and discards them at the end. And it spends timers on each message. Streams and consumers are
// looked up and created with nats.go.
//
// When the stream or the consumer is lost, the feed binds again: it looks both up, creates a missing one,
// and judges whether they fit. "notifier check" judges by the same rules.
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
	"notifier/internal/streams"
	"notifier/internal/wait"
)

// Settings of a new consumer. An existing one is used as it is.
const (
	ackWait = 20 * time.Second // a crashed worker's events are redelivered after at most that
	// Deliveries that all workers together may hold: enough for 16 full workers.
	maxAckPendingReplicas = 16
)

// Pauses between two attempts to bind. The longer one follows a denied acknowledgement, because each denial
// is a line in the logs of the server.
var (
	bindRetry   = 500 * time.Millisecond
	deniedRetry = 5 * time.Second
)

// DefaultBudget is for Settings.Budget, in bytes.
const DefaultBudget = 12 << 20

// BatchesHeld bounds the batches that one worker holds: one is being decided, one is being settled, and the
// others save the loop from waiting for the server.
const BatchesHeld = 4

// Settings name the stream and the durable consumer that a worker reads, and bound its deliveries in flight.
type Settings struct {
	Connection Connection
	Stream     string // created with Subject if it is absent, never altered
	Consumer   string // durable, shared by all workers; created if it is absent, never altered
	Subject    string // NATS_SUBJECT
	Namespace  string // REDIS_NAMESPACE, kept in the metadata of a consumer that is created; see NamespaceKey
	Replicas   int    // of a stream that is created; 0: three in a cluster of three servers or more, else one
	MaxBytes   int64  // of a stream that is created; zero means no bound

	Capacity    int   // most deliveries in flight, 1 or more
	Budget      int64 // most bytes of them, by Delivery.Bytes; 1 MiB or more
	MostPayload int   // longer payloads are cut to the part that a dead letter shows. Zero means no bound

	MayFetch func() bool               // nothing is fetched while it returns false
	Bound    func(ctx context.Context) // called each time a consumer is bound; it may not wait. It may be nil
	Tracker  *availability.Tracker
	Log      *zap.Logger
}

// ErrUnsuitable marks faults that waiting does not fix: JetStream is off, or a consumer cannot be used.
var ErrUnsuitable = errors.New("this NATS cannot be used")

// Feed reads a durable pull consumer. Make it with New, run it once.
type Feed struct {
	settings  Settings
	js        jetstream.JetStream
	maker     *streams.Maker
	inflight  *inflight
	allowance allowance

	// reporting is held while progress is reported, and while an event is handed back: a report that comes
	// later would end the delay.
	reporting sync.Mutex

	quiet time.Duration // finishQuiet, but in tests

	isBound  atomic.Bool
	pending  atomic.Uint64   // events after the one that was delivered last
	ackWait  atomic.Int64    // the consumer's, a time.Duration; 0 before it is bound
	wasBound bool            // once or more
	created  time.Time       // when the stream was created that this was bound to last
	risks    map[string]bool // that were logged at the last binding
}

// New makes a Feed, without a request to a server.
func New(settings Settings) (*Feed, error) {
	js, err := jetstream.New(settings.Connection.Conn)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &Feed{
		settings: settings,
		js:       js,
		maker:    streams.NewMaker(js, settings.Replicas, SizeSetting, settings.Log),
		inflight: newInflight(settings.Capacity, settings.Budget),
		quiet:    finishQuiet,
	}, nil
}

// Run reads until ctx ends. It binds again when the stream or the consumer is lost. It fails only if waiting
// does not help: with ErrUnsuitable, or if the connection is closed for good. After Run nothing more arrives.
func (s *Feed) Run(ctx context.Context) error {
	defer s.inflight.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the work that Bound has started, also when the connection is closed for good
	return s.run(ctx)
}

// Take moves up to limit deliveries to the caller, in order of arrival. It waits only for the first: until
// nothing more will arrive (nil, nil; see Done), idle has passed (nil, nil) or ctx ends.
func (s *Feed) Take(ctx context.Context, limit int, idle time.Duration) ([]*Delivery, error) {
	return s.inflight.take(ctx, limit, idle)
}

// Gather waits until the wanted number of deliveries has arrived, for patience at most: small batches cost
// more. It returns early when there is no room for more, nothing more will arrive, or ctx ends.
func (s *Feed) Gather(ctx context.Context, wanted int, patience time.Duration) {
	s.inflight.gather(ctx, wanted, patience)
}

// Behind reports whether the stream has more for the consumer than is in flight here.
func (s *Feed) Behind() bool { return s.pending.Load() > uint64(s.inflight.size()) }

// Done reports whether nothing more will arrive and all that has arrived was taken.
func (s *Feed) Done() bool { return s.inflight.done() }

// Held counts the deliveries in flight.
func (s *Feed) Held() int { return s.inflight.size() }

// Full reports whether nothing more can be fetched for want of room.
func (s *Feed) Full() bool { return s.inflight.full() }

// IsBound reports whether a consumer is being read.
func (s *Feed) IsBound() bool { return s.isBound.Load() }

// HandBackAll ends all that is in flight: the server delivers it again at once, to another worker or to the
// next start of this one. Run has ended.
func (s *Feed) HandBackAll() error {
	for _, reply := range s.inflight.drain() {
		if err := s.settings.Connection.Publish(reply, ackRetry); err != nil {
			return fmt.Errorf("nats: return for redelivery: %w", err)
		}
	}
	return nil
}

// KeepAlive reports all deliveries in flight as in progress, four times in each AckWait, until ctx ends.
func (s *Feed) KeepAlive(ctx context.Context) {
	for {
		ackWait := time.Duration(s.ackWait.Load())
		if !wait.For(ctx, keepAliveCheck(ackWait)) {
			return
		}
		s.touch(time.Now(), ackWait/4)
	}
}

// keepAliveCheck returns the pause between two searches for deliveries to report: a tenth of the time after
// which one is reported, and a second at most, because another consumer may be less patient.
func keepAliveCheck(ackWait time.Duration) time.Duration {
	return min(max(ackWait/40, 100*time.Millisecond), time.Second)
}

// touch reports the deliveries that were not reported for the quiet time. Without a connection it does
// nothing: nats.go would queue the reports, and they would displace acknowledgements.
func (s *Feed) touch(now time.Time, quiet time.Duration) {
	if !s.settings.Connection.IsConnected() {
		return
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	for _, reply := range s.inflight.untouched(now.Add(-quiet), now) {
		_ = s.settings.Connection.Publish(reply, ackProgress) // an error means a closed connection: run ends
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
		if s.settings.Bound != nil {
			s.settings.Bound(ctx)
		}
		s.ackWait.Store(int64(info.Config.AckWait))
		s.allowance.bind(info.Config, s.inflight.capacity)
		s.isBound.Store(true)
		err = s.newReader(info).run(ctx)
		s.isBound.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		s.settings.Tracker.Lost(availability.Consumer, err)
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil
		}
	}
}

// bind waits until stream and consumer exist and fit; nil, nil when ctx ends before.
func (s *Feed) bind(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	for {
		pause := bindRetry
		if s.settings.Connection.IsClosed() {
			return nil, nats.ErrConnectionClosed
		}
		if !s.settings.Connection.IsConnected() {
			s.settings.Tracker.Lost(availability.NATS, s.settings.Connection.Down())
		} else {
			s.settings.Tracker.Recovered(availability.NATS)
			info, err := s.lookUp(ctx)
			if err == nil {
				s.settings.Tracker.Recovered(availability.Consumer)
				return info, nil
			}
			if errors.Is(err, ErrUnsuitable) {
				return nil, err
			}
			if ctx.Err() == nil {
				s.settings.Tracker.Lost(availability.Consumer, err)
			}
			if errors.Is(err, nats.ErrPermissionViolation) {
				pause = deniedRetry
			}
		}
		if !wait.For(ctx, wait.Jitter(pause)) {
			return nil, nil
		}
	}
}
