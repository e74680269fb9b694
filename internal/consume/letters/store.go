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
	"notifier/internal/streams"
	"notifier/internal/wait"
)

// The limits of a new dead-letter stream. An existing one is used as it is.
const (
	maxAge         = 30 * 24 * time.Hour
	maxPerCategory = 1000 // so that one category cannot displace the letters of all others
)

// storeTimeout bounds one attempt to store letters, which may have to create the stream. A letter that is
// stored after the timeout is tried again and stays one letter, because of its message ID.
const storeTimeout = 5 * time.Second

// ensureRetry separates two attempts to find or create the dead-letter stream.
var ensureRetry = time.Second

// errUnconnected fails an attempt without a connection. The client would only queue the letters.
var errUnconnected = errors.New("no connection to NATS")

// StoreSettings name the dead-letter stream of a worker.
type StoreSettings struct {
	Connection feed.Connection
	Events     string // the stream of the events; their letters go to <Events>_DEAD
	Subject    string // letters go to <Subject>.<category>
	MaxBytes   int64  // of a new stream, which then deletes its oldest letters; 0 means no limit
	Replicas   int    // of a new stream; 0 means three in a cluster of three servers or more, else one
	Tracker    *availability.Tracker
	Log        *zap.Logger
}

// Store stores letters in the dead-letter stream.
type Store struct {
	settings StoreSettings
	js       jetstream.JetStream
	maker    *streams.Maker
}

// NewStore returns a Store. It makes no request.
func NewStore(settings StoreSettings) (*Store, error) {
	js, err := jetstream.New(settings.Connection.Conn, jetstream.WithPublishAsyncTimeout(storeTimeout))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	maker := streams.NewMaker(js, settings.Replicas, SizeSetting, settings.Log)
	return &Store{settings: settings, js: js, maker: maker}, nil
}

// Ensure finds or creates the dead-letter stream. It retries until it succeeds or ctx is done. A worker does
// not wait for Ensure, because sendable events need no letter.
func (s *Store) Ensure(ctx context.Context) {
	for {
		// Without a connection nats.go would queue the request beside acknowledgements. The feed reports the
		// outage.
		if s.settings.Connection.IsConnected() {
			err := s.ensure(ctx)
			if err == nil {
				s.settings.Tracker.Recovered(availability.DeadLetters)
				return
			}
			if ctx.Err() == nil && s.settings.Connection.IsConnected() {
				s.settings.Tracker.Lost(availability.DeadLetters, err)
			}
		}
		if !wait.For(ctx, wait.Jitter(ensureRetry)) {
			return
		}
	}
}

func (s *Store) ensure(ctx context.Context) error {
	config := Config(s.settings.Events, s.settings.Subject, s.settings.MaxBytes)
	if _, err := s.maker.Ensure(ctx, config); err != nil {
		return fmt.Errorf("stream %s: %w", StreamName(s.settings.Events), err)
	}
	return nil
}

// SizeSetting names the variable with the size of the dead-letter stream.
const SizeSetting = "DEAD_LETTER_MAX_BYTES"

// Config returns the configuration of a new dead-letter stream for a stream of events.
func Config(events, subject string, maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              StreamName(events),
		Description:       "events that notifier could not send, with the reason in their headers",
		Subjects:          []string{subject + ".>"},
		MaxAge:            maxAge,
		MaxBytes:          maxBytes,
		Discard:           jetstream.DiscardOld, // a letter too many costs the oldest, not the newest
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: maxPerCategory,
	}
}

// Put stores the letters of dead events and sets the sequence of each. It returns one error for each event,
// nil for a stored letter, within storeTimeout. If the dead-letter stream is missing, Put creates it for the
// next attempt.
func (s *Store) Put(ctx context.Context, dead []result.Result) []error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if s.settings.Connection.Unreachable(ctx) != nil {
		return slices.Repeat([]error{errUnconnected}, len(dead))
	}
	futures, errs := make([]jetstream.PubAckFuture, len(dead)), make([]error, len(dead))
	stream, maxBytes := StreamName(s.settings.Events), s.settings.Connection.MaxPayload()
	for i := range dead {
		futures[i], errs[i] = s.js.PublishMsgAsync(Write(s.settings.Subject, stream, &dead[i], maxBytes))
	}
	for i, future := range futures {
		if errs[i] == nil {
			dead[i].LetterSeq, errs[i] = acknowledged(ctx, future)
		}
	}
	var creation error
	if slices.ContainsFunc(errs, isStreamMissing) {
		creation = s.ensure(ctx)
	}
	for i, err := range errs {
		if isStreamMissing(err) && creation != nil {
			err = creation
		}
		if err != nil {
			errs[i] = fmt.Errorf("nats: dead letter: %w", err)
		}
	}
	return errs
}

// isStreamMissing reports whether no stream has stored a letter, because the dead-letter stream is missing or
// another stream has its subjects.
func isStreamMissing(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || streams.IsWrongStream(err)
}

// acknowledged waits until the stream has stored a letter, and returns the letter's sequence.
func acknowledged(ctx context.Context, future jetstream.PubAckFuture) (seq uint64, err error) {
	select {
	case ack := <-future.Ok():
		return ack.Sequence, nil
	case err := <-future.Err():
		return 0, err
	case <-ctx.Done():
		return 0, errors.New("the dead-letter stream does not answer")
	}
}

// Copy makes the message in which a dropped event is republished to <subject>.<category>.
func (s *Store) Copy(subject string, dropped *result.Result) *nats.Msg {
	return Write(subject, "", dropped, s.settings.Connection.MaxPayload())
}
