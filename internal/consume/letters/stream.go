package letters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
)

const (
	requestTimeout = 5 * time.Second // bounds the wait for one reply of the server
	batchSize      = 128             // bounds the letters that Each holds in memory
)

var (
	// ErrNoStream means that no dead-letter stream exists, so there are no letters.
	ErrNoStream = errors.New("no dead-letter stream")
	// ErrNoLetter means that the stream has no letter with this sequence, or no longer.
	ErrNoLetter = errors.New("no such dead letter")
)

// LeftError explains why a letter can never be replayed, or why a message is no letter to delete.
type LeftError struct{ Why string }

func (e *LeftError) Error() string { return e.Why }

// PublishError explains why no stream has stored the event of one letter. A later attempt may succeed.
type PublishError struct{ Why string }

func (e *PublishError) Error() string { return e.Why }

// Stream gives access to the letters of a dead-letter stream.
type Stream struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	events  string // the stream that the letters came from
	pattern event.Pattern
	first   uint64 // sequences of the oldest and the newest letter when the stream was opened
	last    uint64
}

// Open looks up the stream <events>_DEAD. The pattern is the subject pattern of the workers. Open returns
// ErrNoStream if the stream does not exist.
func Open(ctx context.Context, connection *nats.Conn, events string, pattern event.Pattern) (*Stream, error) {
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, StreamName(events))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoStream
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", StreamName(events), explain(ctx, err))
	}
	info := stream.CachedInfo()
	// The library reads directly from a stream that allows it. A direct reply mixes the publisher's headers
	// with the server's, and the library takes an empty letter with a Status header for an error.
	info.Config.AllowDirect = false
	return &Stream{
		js: js, stream: stream, events: events, pattern: pattern,
		first: info.State.FirstSeq, last: info.State.LastSeq,
	}, nil
}

// Name returns the name of the dead-letter stream.
func (s *Stream) Name() string { return StreamName(s.events) }

// StreamName returns the name of the dead-letter stream that belongs to a stream of events.
func StreamName(events string) string { return events + "_DEAD" }

// Get returns the letter with this sequence, or ErrNoLetter.
func (s *Stream) Get(ctx context.Context, seq uint64) (*Letter, error) {
	return s.read(ctx, seq)
}

// Each calls do with each letter that existed when the stream was opened, oldest first. It returns the first
// error. Each reads a batch ahead, so do may see a letter that was deleted a moment ago.
func (s *Stream) Each(ctx context.Context, do func(*Letter) error) error {
	r := reader{stream: s}
	for next := max(1, s.first); next <= s.last; { // an empty stream has no sequence
		batch, err := r.batch(ctx, next)
		if errors.Is(err, ErrNoLetter) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, letter := range batch {
			if letter.Seq > s.last {
				return nil
			}
			if err := do(letter); err != nil {
				return err
			}
			next = letter.Seq + 1
		}
	}
	return nil
}

// reader reads letters in order through a consumer that needs no acknowledgement. It is no OrderedConsumer:
// the library takes an empty letter with a Status header, which a publisher can cause in versions before
// v0.3.0, for a message of the server, and an OrderedConsumer would start again at that letter forever.
type reader struct {
	stream    *Stream
	consumer  jetstream.Consumer // nil before the first batch and after a letter was missing
	delivered uint64             // sequence of the consumer's last letter
}

// batch returns one letter or more at or after the sequence next, or ErrNoLetter. If the consumer delivers
// nothing, or not the letter that follows the last one, batch requests that letter by itself.
func (r *reader) batch(ctx context.Context, next uint64) ([]*Letter, error) {
	if r.consumer == nil {
		if err := r.consume(ctx, next); err != nil {
			return nil, err
		}
	}
	batch, err := r.consumer.FetchNoWait(batchSize)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", r.stream.Name(), explain(ctx, err))
	}
	var letters []*Letter
	for message := range batch.Messages() {
		metadata, err := message.Metadata()
		if err != nil || metadata.Sequence.Consumer != r.delivered+1 {
			break
		}
		r.delivered++
		letters = append(letters, readLetter(&jetstream.RawStreamMsg{
			Subject: message.Subject(), Sequence: metadata.Sequence.Stream, Time: metadata.Timestamp,
			Header: message.Headers(), Data: message.Data(),
		}, r.stream.pattern))
	}
	if len(letters) > 0 {
		return letters, nil
	}
	r.consumer = nil
	letter, err := r.stream.read(ctx, next, jetstream.WithGetMsgSubject(">"))
	return []*Letter{letter}, err
}

// consume creates a consumer that starts at a sequence. The server deletes it some time after its last use.
func (r *reader) consume(ctx context.Context, next uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	consumer, err := r.stream.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", r.stream.Name(), explain(ctx, err))
	}
	r.consumer, r.delivered = consumer, 0
	return nil
}

func (s *Stream) read(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	message, err := s.stream.GetMsg(ctx, seq, opts...)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, ErrNoLetter
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	return readLetter(message, s.pattern), nil
}

// Delete deletes a letter that workers keep below subject. A letter that is gone already counts as deleted.
// The error is a *LeftError if no worker wrote the message. Any other error concerns all letters.
func (s *Stream) Delete(ctx context.Context, subject string, letter *Letter) error {
	if why := letter.foreign(subject); why != "" {
		return &LeftError{why}
	}
	return s.remove(ctx, letter.Seq)
}

func (s *Stream) remove(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.stream.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if _, readErr := s.Get(ctx, seq); errors.Is(readErr, ErrNoLetter) {
			return nil // another client has deleted it, or it has expired
		}
	}
	if err != nil {
		return fmt.Errorf("delete letter %d of stream %s: %w", seq, s.Name(), explain(ctx, err))
	}
	return nil
}

// Receipt names the place of a replayed event. Stream is empty if the event was not published.
type Receipt struct {
	Stream    string
	Seq       uint64
	Duplicate bool // an earlier replay had published it, but not deleted its letter
}

// Replay publishes the event of a letter to the subject that it came from. When a stream has stored the
// event, Replay deletes the letter. After a crash in between, the letter still exists, and replaying it again
// makes no second event: the stream remembers the message ID for its duplicate window (two minutes by
// default), and the workers remember the ID of a sent event for DEDUPE_WINDOW.
//
// The error is a *LeftError or a *PublishError if it concerns this letter alone. Any other error concerns all
// letters. If the Receipt then names a stream, the event was published and its letter was not deleted.
func (s *Stream) Replay(ctx context.Context, letter *Letter) (Receipt, error) {
	if why := letter.obstacle(s.pattern); why != "" {
		return Receipt{}, &LeftError{why}
	}
	if config := s.stream.CachedInfo().Config; config.DenyDelete || config.Sealed {
		return Receipt{}, fmt.Errorf("stream %s does not allow messages to be deleted: "+
			"every replay would publish its letters again", s.Name())
	}
	receipt, err := s.publish(ctx, letter)
	if err != nil {
		return Receipt{}, err
	}
	return receipt, s.remove(ctx, letter.Seq)
}

func (s *Stream) publish(ctx context.Context, letter *Letter) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ack, err := s.js.PublishMsg(ctx, letter.message())
	refused := (*jetstream.APIError)(nil)
	switch {
	case err == nil:
		return Receipt{Stream: ack.Stream, Seq: ack.Sequence, Duplicate: ack.Duplicate}, nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return Receipt{}, &PublishError{fmt.Sprintf(
			"no stream stores %s, expected one such as %s, which the first \"notifier serve\" creates",
			letter.Subject, s.events)}
	case errors.Is(err, nats.ErrMaxPayload),
		errors.Is(err, nats.ErrBadHeaderMsg),
		errors.Is(err, jetstream.ErrInvalidJSAck),
		errors.As(err, &refused):
		return Receipt{}, &PublishError{err.Error()}
	default:
		return Receipt{}, fmt.Errorf("publish to %s: %w", letter.Subject, explain(ctx, err))
	}
}

// explain turns the error of a request into one that an operator understands.
func explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("NATS did not respond within %s", requestTimeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w; expected a server with JetStream (nats-server -js)", err)
	}
	return err
}
