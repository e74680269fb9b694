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
)

// What a consumer is created with. One that is there already is used as it is.
const (
	ackWait = 20 * time.Second // a crashed worker's events are handed out again after at most that
	// Deliveries that all replicas together may hold: enough for 16 replicas with full hands.
	maxAckPendingHands = 16
	deadLetterAge      = 30 * 24 * time.Hour
	apiTimeout         = 5 * time.Second
	bindRetry          = time.Second
	apiPrefix          = "$JS.API."
	keepAliveLook      = 100 * time.Millisecond // how often the hand is looked through for old deliveries
)

// JetStream names the stream and the durable consumer that a worker reads.
type JetStream struct {
	Connection *nats.Conn
	Stream     string // created with Subject if it is absent, never altered
	Consumer   string // durable, shared by all replicas; created if it is absent, never altered
	Subject    string // what to read
	DeadLetter string // dead letters go to <DeadLetter>.<category>, in the stream <Stream>_DEAD
}

// ErrUnsuitable marks what waiting does not mend: JetStream that is off, a consumer that cannot be used.
var ErrUnsuitable = errors.New("this NATS cannot be used")

// jetStreamSource reads a durable pull consumer.
type jetStreamSource struct {
	JetStream
	js    jetstream.JetStream
	hand  *hand
	waits *waits
	log   *zap.Logger
	pause func() bool

	isBound  atomic.Bool
	ackWait  atomic.Int64 // the consumer's, a time.Duration; 0 before it is bound
	wasBound bool
	created  time.Time // when the stream was, that this was bound to last
}

func newJetStreamSource(settings JetStream, h *hand, w *waits, log *zap.Logger, pause func() bool) (*jetStreamSource, error) {
	js, err := jetstream.New(settings.Connection, jetstream.WithDefaultTimeout(apiTimeout), jetstream.WithPublishAsyncTimeout(apiTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &jetStreamSource{JetStream: settings, js: js, hand: h, waits: w, log: log, pause: pause}, nil
}

// run reads until ctx ends. It binds again when the stream or the consumer is lost, and gives up only on what waiting
// does not mend.
func (s *jetStreamSource) run(ctx context.Context) error {
	for {
		info, err := s.bind(ctx)
		if err != nil {
			return err
		}
		if info == nil {
			return nil // ctx ended
		}
		s.wasBound = true
		s.ackWait.Store(int64(info.Config.AckWait))
		s.isBound.Store(true)
		err = newPull(s.Connection, info, apiPrefix, s.hand, s.waits, s.pause).run(ctx)
		s.isBound.Store(false)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		s.waits.begin(waitConsumer, err)
		if !sleep(ctx, jitter(bindRetry)) {
			return nil
		}
	}
}

// bind waits until stream, dead-letter stream and consumer are there; nil, nil when ctx ends before.
func (s *jetStreamSource) bind(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	for {
		if s.Connection.IsClosed() {
			return nil, nats.ErrConnectionClosed
		}
		if !s.Connection.IsConnected() {
			s.waits.begin(waitNATS, unconnected(s.Connection))
		} else {
			s.waits.end(waitNATS)
			info, err := s.lookUp(ctx)
			if err == nil {
				s.waits.end(waitConsumer)
				return info, nil
			}
			if errors.Is(err, ErrUnsuitable) {
				return nil, err
			}
			if ctx.Err() == nil {
				s.waits.begin(waitConsumer, err)
			}
		}
		if !sleep(ctx, jitter(bindRetry)) {
			return nil, nil
		}
	}
}

func (s *jetStreamSource) lookUp(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	stream, err := s.stream(ctx, jetstream.StreamConfig{
		Name:        s.Stream,
		Description: "events to be sent to Slack by notifier; an event leaves when it is settled",
		Subjects:    []string{s.Subject},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew, // should somebody bound it later: publishers are told, nothing is thrown away
		Storage:     jetstream.FileStorage,
	})
	if err != nil {
		return nil, err
	}
	if err := s.deadLetterStream(ctx); err != nil {
		return nil, err
	}
	if created := stream.CachedInfo().Created; !created.Equal(s.created) {
		s.hand.disown()
		s.created = created
		s.warnOfLoss(stream.CachedInfo().Config)
	}
	consumer, err := stream.Consumer(ctx, s.Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable:       s.Consumer,
			Description:   "shared by all replicas of notifier",
			FilterSubject: s.Subject,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       ackWait,
			MaxDeliver:    -1,
			MaxAckPending: maxAckPendingHands * s.hand.capacity,
		})
		if errors.Is(err, jetstream.ErrConsumerExists) { // another replica was faster
			consumer, err = stream.Consumer(ctx, s.Consumer)
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, fmt.Errorf("%w: consumer %s of stream %s pushes, expected a pull consumer", ErrUnsuitable, s.Consumer, s.Stream)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", s.Consumer, s.Stream, s.unsuitable(err))
	}
	info := consumer.CachedInfo()
	config := info.Config
	switch {
	case config.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, fmt.Errorf("%w: consumer %s of stream %s has acknowledgement policy %s, expected explicit", ErrUnsuitable, s.Consumer, s.Stream, config.AckPolicy)
	case config.MaxDeliver > 0:
		s.log.Warn("the consumer gives events up", zap.String("consumer", s.Consumer), zap.Int("max_deliver", config.MaxDeliver),
			zap.String("advice", "set max_deliver to -1: an event that is held for long is not delivered again after so many times"))
	}
	return info, nil
}

// shortAge is less than an outage may last: a stream that keeps events for less time throws away what is held.
const shortAge = time.Hour

// warnOfLoss tells what a stream's own settings may throw away before anybody has read it: limits count in every
// retention policy.
func (s *jetStreamSource) warnOfLoss(config jetstream.StreamConfig) {
	warn := func(what, advice string) {
		s.log.Warn("the stream may lose events", zap.String("stream", config.Name), zap.String("why", what), zap.String("advice", advice))
	}
	if config.MaxAge > 0 && config.MaxAge < shortAge {
		warn("max_age is "+config.MaxAge.String(), "an event that is held for longer is gone: set max_age to an hour or more, or to 0")
	}
	bounded := config.MaxMsgs > 0 || config.MaxBytes > 0 || config.MaxMsgsPerSubject > 0
	if config.Discard == jetstream.DiscardOld && bounded {
		warn("it is bounded and discards old messages", "a full stream throws away what nobody has read: set discard to new, so that publishers are told instead")
	}
}

func (s *jetStreamSource) deadLetterStream(ctx context.Context) error {
	_, err := s.stream(ctx, jetstream.StreamConfig{
		Name:        s.Stream + "_DEAD",
		Description: "events that notifier could not send, with the reason in their headers",
		Subjects:    []string{s.DeadLetter + ".>"},
		MaxAge:      deadLetterAge,
		Storage:     jetstream.FileStorage,
	})
	return err
}

// stream looks a stream up and creates it if it is absent. One that is there is used as it is.
func (s *jetStreamSource) stream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster
			stream, err = s.js.Stream(ctx, config.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", config.Name, s.unsuitable(err))
	}
	return stream, nil
}

// unsuitable marks the errors that waiting does not mend. Nobody answers where JetStream is off; where it was on before,
// its servers are only away.
func (s *jetStreamSource) unsuitable(err error) error {
	off := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	if off && !s.wasBound {
		return fmt.Errorf("%w: %v; expected a server with JetStream (nats-server -js), or NATS_MODE=core", ErrUnsuitable, err)
	}
	return err
}

func (s *jetStreamSource) bound() bool { return s.isBound.Load() }

// keepAlive tells the server that what is in hand is being worked on: four times in the time after which it would hand
// it out again.
func (s *jetStreamSource) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(keepAliveLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			patience := time.Duration(s.ackWait.Load()) / 4
			for _, reply := range s.hand.untouched(now.Add(-patience), now) {
				_ = s.Connection.Publish(reply, ackProgress) // an error means a closed connection: run ends
			}
		}
	}
}

// The acknowledgements of the JetStream protocol.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
	ackAgain    = []byte("-NAK")
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
	reply := s.hand.replyOf(d)
	if reply == "" {
		return nil
	}
	return s.Connection.Publish(reply, word)
}

func (s *jetStreamSource) lost() int64 { return 0 }

func (s *jetStreamSource) pending(ctx context.Context) (uint64, error) {
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	if err != nil {
		return 0, fmt.Errorf("nats: consumer %s of stream %s: %w", s.Consumer, s.Stream, err)
	}
	return consumer.CachedInfo().NumPending, nil
}

// handBack asks for immediate redelivery, to another replica or to the next start of this one.
func (s *jetStreamSource) handBack(_ int, replies []string) error {
	for _, reply := range replies {
		if err := s.Connection.Publish(reply, ackAgain); err != nil {
			return fmt.Errorf("nats: hand back: %w", err)
		}
	}
	return nil
}

// bury publishes dead letters and waits until the dead-letter stream has them all.
func (s *jetStreamSource) bury(ctx context.Context, letters []*nats.Msg) error {
	futures := make([]jetstream.PubAckFuture, len(letters))
	for i, letter := range letters {
		future, err := s.js.PublishMsgAsync(letter)
		if err != nil {
			return fmt.Errorf("nats: dead letter: %w", err)
		}
		futures[i] = future
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			if errors.Is(err, jetstream.ErrNoStreamResponse) { // nobody keeps the letters: the stream was deleted
				err = errors.Join(err, s.deadLetterStream(ctx))
			}
			return fmt.Errorf("nats: dead letter: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("nats: dead letter: no acknowledgement of %s_DEAD: %w", s.Stream, ctx.Err())
		}
	}
	return nil
}

// unconnected says which servers do not answer, and why as far as it is known.
func unconnected(connection *nats.Conn) error {
	reason := connection.LastError()
	if reason == nil {
		reason = errors.New("no server has answered")
	}
	return fmt.Errorf("no connection to %s: %w", RedactServers(connection.Servers()), reason)
}
