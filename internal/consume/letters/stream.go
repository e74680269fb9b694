package letters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

const (
	requestTimeout = 5 * time.Second // bounds the wait for one reply of the server
	batchSize      = 500             // letters of one fetch, without payloads
	singleReads    = 50              // letters read one by one where a fetch finds none
)

// LetterError is an error that concerns one letter alone.
type LetterError struct {
	Why       string
	Permanent bool // no later attempt can succeed
}

func (e *LetterError) Error() string { return e.Why }

// errNoLetter means that the stream has no letter with this sequence, or no longer.
var errNoLetter = &LetterError{Why: "it does not exist; replayed, deleted and displaced letters are gone"}

// Stream gives access to the letters of a dead-letter stream.
type Stream struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	events  string // the stream that the letters came from
	pattern event.Pattern
	first   uint64 // sequences of the oldest and the newest letter when the stream was opened
	last    uint64
}

// Open looks up the stream <events>_DEAD. The pattern is the subject pattern of the workers.
func Open(ctx context.Context, connection *nats.Conn, events string, pattern event.Pattern) (*Stream, error) {
	js, err := jetstream.New(connection, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, err
	}
	s := &Stream{js: js, events: events, pattern: pattern}
	s.stream, err = js.Stream(ctx, s.Name())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s does not exist; the first worker creates it: check NATS_STREAM",
			s.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	info := s.stream.CachedInfo()
	s.first, s.last = info.State.FirstSeq, info.State.LastSeq
	// The library reads directly from a stream that allows it. A direct reply mixes the publisher's headers
	// with the server's, and the library takes an empty letter with a Status header for an error.
	info.Config.AllowDirect = false
	return s, nil
}

// Name returns the name of the dead-letter stream.
func (s *Stream) Name() string { return StreamName(s.events) }

// StreamName returns the name of the dead-letter stream that belongs to a stream of events.
func StreamName(events string) string { return events + "_DEAD" }

// Each calls do with the record of each letter that existed when the stream was opened, oldest first. It
// returns the first error. Each reads a batch ahead, so do may see a letter that was deleted a moment ago.
func (s *Stream) Each(ctx context.Context, do func(outcome.Record) error) error {
	for next := max(1, s.first); next <= s.last; { // an empty stream has no sequence
		batch, err := s.batch(ctx, next)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, record := range batch {
			if record.LetterSeq > s.last {
				return nil
			}
			if err := do(record); err != nil {
				return err
			}
			next = record.LetterSeq + 1
		}
	}
	return nil
}

// batch returns letters in order, beginning with the first at or after the sequence from. It returns none at
// the end of the stream.
//
// The library takes a letter with a Status header, which a publisher can cause in versions before v0.3.0, for
// a message of the server. A fetch ends there, and the letter is read by itself. An OrderedConsumer would
// restart at that letter over a thousand times a second, and needs the permission to delete consumers.
func (s *Stream) batch(ctx context.Context, from uint64) ([]outcome.Record, error) {
	records, err := s.fetch(ctx, from)
	if err != nil || len(records) > 0 {
		return records, err
	}
	for range singleReads {
		letter, err := s.read(ctx, from, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, errNoLetter) || err != nil && len(records) > 0 {
			break // the next fetch begins there
		}
		if err != nil {
			return nil, fmt.Errorf("letter %d or the next after it: %w", from, err)
		}
		records = append(records, letter.Record)
		from = letter.Record.LetterSeq + 1
	}
	return records, nil
}

// fetch returns the letters that a consumer delivers at once, up to the first that is missing.
func (s *Stream) fetch(ctx context.Context, from uint64) (records []outcome.Record, err error) {
	consumer, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: requestTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	batch, err := consumer.FetchNoWait(batchSize)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	for {
		var m jetstream.Msg
		select {
		case m = <-batch.Messages():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if m == nil { // the end
			return records, nil
		}
		metadata, err := m.Metadata()
		if err != nil || metadata.Sequence.Consumer != uint64(len(records)+1) {
			return records, nil
		}
		message := &nats.Msg{Subject: m.Subject(), Header: m.Headers()}
		letter := readLetter(message, metadata.Sequence.Stream, metadata.Timestamp, s.pattern)
		records = append(records, letter.Record)
	}
}

// Get returns the letter with this sequence. The error is a LetterError if there is none, or none that can be
// read.
func (s *Stream) Get(ctx context.Context, seq uint64) (*Letter, error) { return s.read(ctx, seq) }

func (s *Stream) read(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*Letter, error) {
	m, err := s.stream.GetMsg(ctx, seq, opts...)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, errNoLetter
	case errors.Is(err, nats.ErrBadHeaderMsg):
		return nil, &LetterError{"it is no dead letter: its headers cannot be read", true}
	case err != nil:
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	message := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	return readLetter(message, m.Sequence, m.Time, s.pattern), nil
}

// Delete deletes a letter that workers keep below subject. A letter that is gone already counts as deleted.
// The error is a permanent LetterError if no worker wrote the message. Any other error concerns all letters.
func (s *Stream) Delete(ctx context.Context, subject string, letter *Letter) error {
	if why := letter.foreign(subject); why != "" {
		return &LetterError{why, true}
	}
	err := s.stream.DeleteMsg(ctx, letter.Record.LetterSeq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if _, readErr := s.Get(ctx, letter.Record.LetterSeq); errors.Is(readErr, errNoLetter) {
			return nil // another client has deleted it, or it has expired
		}
	}
	if err != nil {
		return fmt.Errorf("not deleted: %w", explain(ctx, err))
	}
	return nil
}

// Replay publishes the event of a letter to the subject that it came from. When a stream has stored the
// event, Replay deletes the letter, which workers keep below subject. After a crash in between, the letter
// still exists, and replaying it again makes no second event: the stream remembers the message ID for its
// duplicate window (two minutes by default), and the workers remember the ID of a sent event for
// DEDUPE_WINDOW.
//
// The error is a LetterError if it concerns this letter alone: a permanent one if the letter can never be
// replayed, or no worker wrote it. Any other error concerns all letters.
func (s *Stream) Replay(ctx context.Context, subject string, letter *Letter) error {
	for _, why := range []string{letter.foreign(subject), letter.obstacle(s.pattern)} {
		if why != "" {
			return &LetterError{why, true}
		}
	}
	if config := s.stream.CachedInfo().Config; config.DenyDelete || config.Sealed {
		return fmt.Errorf("stream %s does not allow messages to be deleted: "+
			"every replay would publish its letters again", s.Name())
	}
	if err := s.publish(ctx, letter); err != nil {
		return err
	}
	if err := s.Delete(ctx, subject, letter); err != nil {
		return fmt.Errorf("published, but %w; replay it again within the stream's duplicate window "+
			"(two minutes by default) to avoid a second event", err)
	}
	return nil
}

func (s *Stream) publish(ctx context.Context, letter *Letter) error {
	_, err := s.js.PublishMsg(ctx, letter.message())
	refused := (*jetstream.APIError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return &LetterError{Why: fmt.Sprintf("no stream stores %s, or %s has no leader now; "+
			"start \"notifier serve\", which creates the stream, or replay again",
			letter.Record.Subject, s.events)}
	case errors.Is(err, nats.ErrMaxPayload),
		errors.Is(err, nats.ErrBadHeaderMsg),
		errors.Is(err, jetstream.ErrInvalidJSAck),
		errors.As(err, &refused):
		return &LetterError{Why: err.Error()}
	}
	return fmt.Errorf("not published to %s: %w", letter.Record.Subject, explain(ctx, err))
}

// explain turns the error of a request into one that an operator understands.
func explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("NATS did not respond within %s", requestTimeout)
	}
	return err
}
