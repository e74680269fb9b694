package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/consume/streams"
	"notifier/internal/consume/wait"
)

// What the dead-letter stream is created with. One that exists is used as it is.
const (
	keptFor        = 30 * 24 * time.Hour
	mostOfCategory = 1000 // one category cannot displace the letters of all others
)

const (
	lookUpTimeout = time.Second // for a question to the server
	// storeTimeout is how long one attempt to store letters may take. A letter that is stored after it is tried
	// again, and is no second letter, because of its message id.
	storeTimeout = 2 * time.Second
)

// ensureRetry is the pause between two attempts to find or create the dead-letter stream.
var ensureRetry = time.Second

// errUnconnected is why no letter is published while there is no connection: the client would only queue it.
var errUnconnected = errors.New("no connection to NATS")

// StoreSettings name the dead-letter stream of a worker.
type StoreSettings struct {
	Connection feed.Connection
	Events     string // the stream of the events; their letters are kept in <Events>_DEAD
	Subject    string // letters go to <Subject>.<category>
	MaxBytes   int64  // of the stream where it is created: then the oldest letters are deleted; 0: no bound
	Replicas   int    // likewise; 0: three in a cluster of three servers or more, else one
	Tracker    *availability.Tracker
	Log        *zap.Logger
}

// Store keeps letters in the dead-letter stream.
type Store struct {
	StoreSettings
	js jetstream.JetStream
}

// NewStore makes a Store and asks no server.
func NewStore(settings StoreSettings) (*Store, error) {
	js, err := jetstream.New(settings.Connection.Conn,
		jetstream.WithDefaultTimeout(lookUpTimeout), jetstream.WithPublishAsyncTimeout(storeTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &Store{StoreSettings: settings, js: js}, nil
}

// Ensure finds or creates the dead-letter stream, until that succeeds or ctx ends. A worker does not wait for
// it: what can be sent needs no letter.
func (s *Store) Ensure(ctx context.Context) {
	for {
		err := s.ensure(ctx)
		if err == nil {
			s.Tracker.Repaired(availability.DeadLetters)
			return
		}
		if ctx.Err() == nil && s.Connection.IsConnected() { // else that is the reason, and it is reported already
			s.Tracker.Impaired(availability.DeadLetters, err)
		}
		if !wait.For(ctx, wait.Jitter(ensureRetry)) {
			return
		}
	}
}

func (s *Store) ensure(ctx context.Context) error {
	_, err := streams.NewMaker(s.js, s.Replicas, s.Log).Ensure(ctx, jetstream.StreamConfig{
		Name:              nameOf(s.Events),
		Description:       "events that notifier could not send, with the reason in their headers",
		Subjects:          []string{s.Subject + ".>"},
		MaxAge:            keptFor,
		MaxBytes:          s.MaxBytes,
		Discard:           jetstream.DiscardOld, // a letter too many costs the oldest, not the newest
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: mostOfCategory,
	})
	if err == nil {
		return nil
	}
	if streams.IsLackOfStorage(err) {
		err = fmt.Errorf("%w; lower DEAD_LETTER_MAX_BYTES, %d, or give the server more room", err, s.MaxBytes)
	}
	return fmt.Errorf("stream %s_DEAD: %w", s.Events, err)
}

// Put stores the letters of dead events, notes the sequence of each, and returns why the stream has not
// stored it, nil where it has. It takes storeTimeout at most. A stream that was deleted is created again for
// the next attempt.
func (s *Store) Put(ctx context.Context, dead []result.Result) []error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if s.Connection.Unreachable(ctx) != nil {
		return slices.Repeat([]error{errUnconnected}, len(dead))
	}
	futures, errs := make([]jetstream.PubAckFuture, len(dead)), make([]error, len(dead))
	for i := range dead {
		futures[i], errs[i] = s.js.PublishMsgAsync(Write(s.Subject, &dead[i], s.Connection.MaxPayload()))
	}
	for i, future := range futures {
		if errs[i] == nil {
			dead[i].LetterSeq, errs[i] = stored(ctx, future)
		}
	}
	missing := func(err error) bool { return errors.Is(err, jetstream.ErrNoStreamResponse) }
	var whyNot error // the stream cannot be created
	if slices.ContainsFunc(errs, missing) {
		whyNot = s.ensure(ctx)
	}
	for i, err := range errs {
		if missing(err) && whyNot != nil {
			err = whyNot
		}
		if err != nil {
			errs[i] = fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return errs
}

// stored waits until the stream has stored what was published, and returns its sequence there.
func stored(ctx context.Context, future jetstream.PubAckFuture) (seq uint64, err error) {
	select {
	case ack := <-future.Ok():
		return ack.Sequence, nil
	case err := <-future.Err():
		return 0, err
	case <-ctx.Done():
		return 0, errors.New("the dead-letter stream does not answer")
	}
}

// Copy is a dropped event as it is republished to <subject>.<category>; it is published without an
// acknowledgement.
func (s *Store) Copy(subject string, dropped *result.Result) *nats.Msg {
	return Write(subject, dropped, s.Connection.MaxPayload())
}
