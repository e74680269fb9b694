package letters

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Receipt describes where a replayed event is stored.
type Receipt struct {
	Stream    string
	Seq       uint64
	Duplicate bool // it had been replayed before, and its letter was not deleted then
}

// NotReplayableError is why a letter can never be replayed and stays where it is.
type NotReplayableError struct{ Why string }

func (l *NotReplayableError) Error() string { return l.Why }

// PublishError is why no stream has stored a letter's event. A later attempt may succeed, and so may other
// events now.
type PublishError struct{ Why string }

func (f *PublishError) Error() string { return f.Why }

// Replay replays a letter: it publishes the event to the subject that it came from, waits until a stream has
// stored it, and then deletes the letter. In this order nothing can get lost: after a crash in between the
// letter still exists. Replaying it again makes no second event, because the stream remembers the message id
// for its duplicate window (two minutes by default) and the workers remember the event's id for DEDUPE_WINDOW
// once it was sent.
//
// The error is a *NotReplayableError or a *PublishError if it concerns this letter alone. Any other error
// concerns all letters; if the Receipt then names a stream, the event is stored and its letter is not
// deleted.
func (s *Stream) Replay(ctx context.Context, letter *Letter) (Receipt, error) {
	if why := letter.obstacle(s.pattern); why != "" {
		return Receipt{}, &NotReplayableError{why}
	}
	if !s.deletable() {
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
