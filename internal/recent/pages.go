package recent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	pageMessages = 1000
	pageBytes    = 2 * pageMessages * maxMessageSize // so that a page is never cut by it
	pageTimeout  = 5 * time.Second
)

// ErrNoStream means that nothing has been recorded: there is no stream of outcomes, or it does not allow direct reads.
var ErrNoStream = errors.New("there is no stream of outcomes")

// errOldServer is why a server cannot be read from.
var errOldServer = errors.New("the NATS server answers no batches; expected version 2.11 or newer")

// message is one message of the stream, which anybody may have published.
type message struct {
	subject string
	seq     uint64
	stored  time.Time
	data    []byte
}

// get asks for messages, as the API has it.
type get struct {
	Seq     uint64     `json:"seq,omitempty"` // from here on
	Start   *time.Time `json:"start_time,omitempty"`
	Subject string     `json:"next_by_subj,omitempty"`
	Last    string     `json:"last_by_subj,omitempty"` // only the latest of this subject
	Batch   int        `json:"batch,omitempty"`
	Bytes   int        `json:"max_bytes,omitempty"`
}

// page is what one request brings.
type page struct {
	messages []message // in their order
	until    uint64    // all messages up to this sequence are among them, those that cannot be read aside
	more     bool      // there are messages after that
}

// page asks for messages at or after a place, pageMessages at most. One request is made for all of them.
func (r *Reader) page(ctx context.Context, from get) (p page, err error) {
	from.Batch, from.Bytes = pageMessages, pageBytes
	err = r.request(ctx, from, func(m *nats.Msg) (bool, error) {
		if stored, ours := r.parse(m); ours {
			p.messages = append(p.messages, stored)
			if len(m.Header.Values("Nats-Num-Pending")) == 0 {
				return true, errOldServer
			}
			return false, nil
		}
		switch status := m.Header.Get("Status"); status {
		case "": // its headers cannot be read: nothing of ours
			return false, nil
		case "204": // the end of the batch
			p.until, _ = strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64) // 0 ends the reading
			p.more = m.Header.Get("Nats-Num-Pending") != "0"
			return true, nil
		default:
			return true, noMessage(m)
		}
	})
	return p, err
}

// noMessage is what an answer that has no message means; nil: there is none.
func noMessage(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "404":
		return nil
	case "503":
		return ErrNoStream
	default:
		return fmt.Errorf("the server answers %q %s", status, m.Header.Get("Description"))
	}
}

// newest is the sequence of the newest message; 0: there is none.
func (r *Reader) newest(ctx context.Context) (seq uint64, err error) {
	err = r.request(ctx, get{Last: r.place.all()}, func(m *nats.Msg) (bool, error) {
		if stored, ours := r.parse(m); ours {
			seq = stored.seq
			return true, nil
		}
		return true, noMessage(m)
	})
	return seq, err
}

// request publishes a request, and hands over the answers until do returns true.
func (r *Reader) request(ctx context.Context, from get, do func(*nats.Msg) (end bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	body, err := json.Marshal(from)
	if err != nil {
		return err
	}
	inbox, answers := r.connection.NewInbox(), make(chan *nats.Msg, pageMessages+1)
	subscription, err := r.connection.ChanSubscribe(inbox, answers)
	if err != nil {
		return err
	}
	defer func() { _ = subscription.Unsubscribe() }() // an error means that the connection is closed
	if err := r.connection.PublishRequest(r.place.readSubject(), inbox, body); err != nil {
		return err
	}
	for {
		select {
		case m := <-answers:
			if end, err := do(m); end || err != nil {
				return err
			}
		case <-ctx.Done():
			return r.why(ctx)
		}
	}
}

// why is why a request was not answered.
func (r *Reader) why(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return errors.New("NATS did not respond in time")
	}
	return cause
}

// parse reads what the server says of a stored message. A publisher can put headers of the same names into it, which then come
// before the server's own; an answer that is no message has none of them.
func (r *Reader) parse(m *nats.Msg) (message, bool) {
	last := func(name string) string {
		values := m.Header.Values(name)
		if len(values) == 0 {
			return ""
		}
		return values[len(values)-1]
	}
	if last(jetstream.StreamHeader) != r.place.Stream {
		return message{}, false
	}
	seq, err := strconv.ParseUint(last(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return message{}, false
	}
	stored, _ := time.Parse(time.RFC3339Nano, last(jetstream.TimeStampHeaer)) // zero: it is not used to decide anything
	return message{subject: last(jetstream.SubjectHeader), seq: seq, stored: stored, data: m.Data}, true
}
