package consume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/redact"
	"notifier/internal/wait"
)

// What a consumer is created with. One that exists is used as it is.
const (
	ackWait = 20 * time.Second // a crashed worker's events are redelivered after at most that
	// Deliveries that all replicas together may hold: enough for 16 full replicas.
	maxAckPendingReplicas = 16
	deadLetterAge         = 30 * 24 * time.Hour
	deadLettersOfCategory = 1000
	apiTimeout            = 5 * time.Second // for what changes something
	lookUpTimeout         = time.Second     // for a question: after an election the next attempt is answered at once
	apiPrefix             = "$JS.API."
)

// bindRetry is the pause between two attempts to reach what a worker starts with.
var bindRetry = 500 * time.Millisecond

// JetStream names the stream and the durable consumer that a worker reads.
type JetStream struct {
	Connection *nats.Conn
	Why        func() error // why there is no connection, without secrets; nil: what nats.go knows of it
	Stream     string       // created with Subject if it is absent, never altered
	Consumer   string       // durable, shared by all replicas; created if it is absent, never altered
	Subject    string       // what to read
	DeadLetter string       // dead letters go to <DeadLetter>.<category>, in the stream <Stream>_DEAD

	DeadLetterBytes int64 // of that stream if it is created: then the oldest letters give way; 0: no bound
	Replicas        int   // of the streams that are created; 0: three in a cluster of three servers or more, else one
}

// ErrUnsuitable marks what waiting does not fix: JetStream that is off, a consumer that cannot be used.
var ErrUnsuitable = errors.New("this NATS cannot be used")

// jetStreamSource reads a durable pull consumer.
type jetStreamSource struct {
	JetStream
	js           jetstream.JetStream
	inflight     *inflight
	availability *availability
	log          *zap.Logger
	mayPull      func() bool
	mostPayload  int // longer payloads are cut; see keep
	parking      parking

	isBound  atomic.Bool
	ackWait  atomic.Int64 // the consumer's, a time.Duration; 0 before it is bound
	wasBound atomic.Bool  // once or more; the dead-letter stream is looked after meanwhile
	created  time.Time    // when the stream was created that this was bound to last
}

func newJetStreamSource(settings JetStream, f *inflight, a *availability, log *zap.Logger, mayPull func() bool) (*jetStreamSource, error) {
	js, err := jetstream.New(settings.Connection, jetstream.WithDefaultTimeout(lookUpTimeout), jetstream.WithPublishAsyncTimeout(letterTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &jetStreamSource{JetStream: settings, js: js, inflight: f, availability: a, log: log, mayPull: mayPull}, nil
}

// run reads until ctx ends. It binds again when the stream or the consumer is lost, and fails only on what waiting does not
// fix.
func (s *jetStreamSource) run(ctx context.Context) error {
	var deadLetters background
	defer deadLetters.wait()
	deadLettersCtx, stopDeadLetters := context.WithCancel(ctx) // it ends with run, also when the connection is closed for good
	defer stopDeadLetters()
	for {
		info, err := s.bind(ctx)
		if err != nil {
			return err
		}
		if info == nil {
			return nil // ctx ended
		}
		s.wasBound.Store(true)
		deadLetters.start(func() { s.keepDeadLetterStream(deadLettersCtx) })
		s.ackWait.Store(int64(info.Config.AckWait))
		s.parking.bind(info, s.inflight.capacity)
		s.isBound.Store(true)
		err = s.newPull(info).run(ctx)
		s.isBound.Store(false)
		s.parking.unbind()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		s.availability.lost(jetStreamConsumer, err)
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil
		}
	}
}

// newPull is the reading of a consumer that was looked up.
func (s *jetStreamSource) newPull(info *jetstream.ConsumerInfo) *pull {
	p := newPull(s.Connection, s.Why, info, apiPrefix, s.inflight, s.availability, s.mayPull)
	p.mostPayload = s.mostPayload
	p.check = func(ctx context.Context) error { return s.sameConsumer(ctx, info) }
	return p
}

// bind waits until stream and consumer exist and fit; nil, nil when ctx ends before.
func (s *jetStreamSource) bind(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	for {
		if s.Connection.IsClosed() {
			return nil, nats.ErrConnectionClosed
		}
		if !s.Connection.IsConnected() {
			s.availability.lost(natsConnection, unconnected(s.Connection, s.Why))
		} else {
			s.availability.recovered(natsConnection)
			info, err := s.lookUp(ctx)
			if err == nil {
				s.availability.recovered(jetStreamConsumer)
				return info, nil
			}
			if errors.Is(err, ErrUnsuitable) {
				return nil, err
			}
			if ctx.Err() == nil {
				s.availability.lost(jetStreamConsumer, err)
			}
		}
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil, nil
		}
	}
}

func (s *jetStreamSource) bound() bool { return s.isBound.Load() }

// keepAlive reports to the server that what is in flight is in progress, four times in the time after which it would
// redeliver it.
func (s *jetStreamSource) keepAlive(ctx context.Context) {
	for {
		ackWait := time.Duration(s.ackWait.Load())
		if !wait.For(ctx, keepAliveCheck(ackWait)) {
			return
		}
		s.touch(time.Now(), ackWait/4)
	}
}

// keepAliveCheck is how often the deliveries in flight are searched for old ones: ten times in the time after which one is reported,
// and at least once a second, as another consumer may be less patient.
func keepAliveCheck(ackWait time.Duration) time.Duration {
	return min(max(ackWait/40, 100*time.Millisecond), time.Second)
}

// touch reports progress of what the server has heard nothing of for so long. It excludes park: a report after the event was
// given back would end its delay.
func (s *jetStreamSource) touch(now time.Time, quiet time.Duration) {
	s.parking.answering.Lock()
	defer s.parking.answering.Unlock()
	for _, reply := range s.inflight.untouched(now.Add(-quiet), now) {
		_ = s.Connection.Publish(reply, ackProgress) // an error means a closed connection: run ends
	}
}

// The acknowledgements of the JetStream protocol.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
	ackRetry    = []byte("-NAK")
	ackTerm     = "+TERM "
)

func (s *jetStreamSource) acknowledge(deliveries []*delivery) error {
	for _, d := range deliveries {
		if err := s.answer(d, ackDone); err != nil {
			return fmt.Errorf("nats: acknowledge: %w", err)
		}
	}
	return nil
}

func (s *jetStreamSource) terminate(d *delivery, reason string) error {
	if err := s.answer(d, []byte(ackTerm+reason)); err != nil {
		return fmt.Errorf("nats: terminate: %w", err)
	}
	return nil
}

func (s *jetStreamSource) answer(d *delivery, word []byte) error {
	reply := s.inflight.replyOf(d)
	if reply == "" {
		return nil
	}
	return s.Connection.Publish(reply, word)
}

func (s *jetStreamSource) pending(ctx context.Context) (uint64, error) {
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	if err != nil {
		return 0, fmt.Errorf("nats: consumer %s of stream %s: %w", s.Consumer, s.Stream, err)
	}
	return consumer.CachedInfo().NumPending, nil
}

// returnUnsettled asks for immediate redelivery, to another replica or to the next start of this one.
func (s *jetStreamSource) returnUnsettled(replies []string) error {
	for _, reply := range replies {
		if err := s.Connection.Publish(reply, ackRetry); err != nil {
			return fmt.Errorf("nats: return for redelivery: %w", err)
		}
	}
	return nil
}

// storedLetter is what became of a letter.
type storedLetter struct {
	seq uint64 // in the dead-letter stream; 0: not known
	err error  // why it is not stored
}

// publishDeadLetters publishes letters and returns for each why the dead-letter stream has not stored it, or where. It waits
// for letterTimeout at most. A stream that was deleted is created again for the next attempt.
func (s *jetStreamSource) publishDeadLetters(ctx context.Context, letters []*nats.Msg) []storedLetter {
	results, futures := make([]storedLetter, len(letters)), make([]jetstream.PubAckFuture, len(letters))
	for i, letter := range letters {
		futures[i], results[i].err = s.js.PublishMsgAsync(letter)
	}
	missing := false
	for i, future := range futures {
		if results[i].err == nil {
			results[i] = stored(ctx, future)
		}
		missing = missing || errors.Is(results[i].err, jetstream.ErrNoStreamResponse)
	}
	var remade error
	if missing {
		remade = s.ensureDeadLetterStream(ctx)
	}
	for i := range results {
		err := results[i].err
		if errors.Is(err, jetstream.ErrNoStreamResponse) && remade != nil {
			err = remade
		}
		if err != nil {
			results[i].err = fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return results
}

// stored waits until a stream has stored what was published.
func stored(ctx context.Context, future jetstream.PubAckFuture) storedLetter {
	select {
	case ack := <-future.Ok():
		return storedLetter{seq: ack.Sequence}
	case err := <-future.Err():
		return storedLetter{err: err}
	case <-ctx.Done():
		return storedLetter{err: errors.New("the dead-letter stream does not answer")}
	}
}

// unconnected names the servers that do not answer, and why as far as it is known.
func unconnected(connection *nats.Conn, why func() error) error {
	if why == nil {
		why = connection.LastError
	}
	reason := why()
	if reason == nil {
		reason = errors.New("no server has answered")
	}
	return fmt.Errorf("no connection to %s: %w", redact.Servers(connection.Servers()), reason)
}
