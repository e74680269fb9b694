package letters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/event"
)

// requestTimeout is how long to wait for one response of the server.
const requestTimeout = 5 * time.Second

// ErrNoStream means that the dead-letter stream does not exist yet, so there are no letters. ErrNoLetter
// means that the stream has no letter with this sequence, or no longer.
var (
	ErrNoStream = errors.New("no dead-letter stream")
	ErrNoLetter = errors.New("no such dead letter")
)

// Stream is a dead-letter stream as it was when it was opened: letters that arrive later are not seen. Its
// methods are not safe for concurrent use.
type Stream struct {
	connection *nats.Conn
	js         jetstream.JetStream
	stream     jetstream.Stream
	events     string // the stream that the letters came from
	pattern    event.Pattern
	first      uint64 // the oldest letter's sequence
	last       uint64 // the newest letter's
}

// Open looks up the stream <events>_DEAD. The pattern is the one with which workers read events. The error is
// ErrNoStream if the stream does not exist; any other concerns the connection or the server.
func Open(ctx context.Context, connection *nats.Conn, events string, pattern event.Pattern) (*Stream, error) {
	s := &Stream{connection: connection, events: events, pattern: pattern}
	var err error
	if s.js, err = jetstream.New(connection); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s.stream, err = s.js.Stream(ctx, s.Name())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoStream
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), explain(ctx, err))
	}
	state := s.stream.CachedInfo().State
	s.first, s.last = state.FirstSeq, state.LastSeq
	return s, nil
}

// Name returns the name of the dead-letter stream.
func (s *Stream) Name() string { return nameOf(s.events) }

// nameOf is the dead-letter stream of a stream of events.
func nameOf(events string) string { return events + "_DEAD" }

// Each calls do with the letters that existed when the stream was opened and still exist, the oldest first,
// one at a time. It returns the first error.
func (s *Stream) Each(ctx context.Context, do func(*Letter) error) error {
	for next := s.first; next <= s.last; next++ {
		letter, err := s.read(ctx, next)
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name(), err)
		}
		if letter == nil || letter.Seq > s.last {
			return nil
		}
		if err := do(letter); err != nil {
			return err
		}
		next = letter.Seq
	}
	return nil
}

// read returns the first letter at or after the sequence from; nil: there is none.
//
// It makes the request itself: if a stream allows direct reads, the client library returns the publisher's
// headers in the place of the server's own, and would take an event without payload that has a "Status: 404"
// for the end of the stream. A consumer of the library would take it for a message of the server, too.
func (s *Stream) read(ctx context.Context, from uint64) (*Letter, error) {
	return s.request(ctx, letterRequest{Seq: from, Next: ">"})
}

// Get returns the letter with a sequence, also one that was stored after the stream was opened. The error is
// ErrNoLetter if there is none.
func (s *Stream) Get(ctx context.Context, seq uint64) (*Letter, error) {
	letter, err := s.request(ctx, letterRequest{Seq: seq})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.Name(), err)
	}
	if letter == nil || letter.Seq != seq {
		return nil, ErrNoLetter
	}
	return letter, nil
}

// letterRequest asks for one message of a stream.
type letterRequest struct {
	Seq  uint64 `json:"seq"`
	Next string `json:"next_by_subj,omitempty"` // the first message at or after Seq that has such a subject
}

// request returns nil where there is no such letter.
func (s *Stream) request(ctx context.Context, which letterRequest) (*Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := json.Marshal(which)
	if err != nil {
		return nil, err
	}
	reply, err := s.connection.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.Name(), request)
	if err != nil {
		return nil, explain(ctx, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("invalid response of the server: %w", err)
	}
	message := answer.Message
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, answer.Error
	case message == nil || message.Seq < which.Seq:
		return nil, errors.New("invalid response of the server: no message")
	}
	letter := &Letter{
		Info:   Info{Seq: message.Seq},
		stored: message.Time.UTC(), kept: message.Subject, data: message.Data,
	}
	if len(message.Header) > 0 {
		// Invalid headers count as none: such a message is not a letter of ours, and stays.
		letter.header, _ = nats.DecodeHeadersMsg(message.Header)
	}
	letter.describe(s.pattern)
	return letter, nil
}

func (s *Stream) remove(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.stream.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if first, readErr := s.read(ctx, seq); readErr == nil && (first == nil || first.Seq != seq) {
			return nil // another client has deleted it, or it has expired
		}
	}
	if err != nil {
		return fmt.Errorf("delete letter %d of stream %s: %w", seq, s.Name(), explain(ctx, err))
	}
	return nil
}

// explain turns an error of a request into one that an operator understands.
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
