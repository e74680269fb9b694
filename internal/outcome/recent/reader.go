package recent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	mostRead     = 50_000 // messages, for one answer
	pageMessages = 1000
	clockSkew    = time.Minute
	defaultList  = 100
)

// ErrNoStream means that there is no stream of outcomes, or that it does not allow direct reads.
var ErrNoStream = errors.New("there is no stream of outcomes")

// Filter selects outcomes. Its zero value selects the newest 100.
type Filter struct {
	Category string    // exactly; empty: all
	Outcome  string    // one of Outcomes; empty: all
	EventID  string    // exactly; empty: all
	Since    time.Time // settled then or later; zero: at any time
	Limit    int       // how many at most, the newest; 0: 100
}

// selects reports whether a filter with bounded texts selects a record.
func (f Filter) selects(o Outcome) bool {
	return (f.Category == "" || f.Category == o.Category) &&
		(f.Outcome == "" || f.Outcome == o.Outcome) &&
		(f.EventID == "" || f.EventID == o.EventID) &&
		!o.Time.Before(f.Since)
}

// needle is a part of each record that a filter selects, as JSON. Most records are not looked for, and
// decoding costs.
func (f Filter) needle() []byte {
	text := f.Outcome
	if f.EventID != "" {
		text = f.EventID
	}
	if text == "" {
		return nil
	}
	quoted, _ := json.Marshal(text) // a string can always be encoded
	return quoted
}

// Answer is what was found.
type Answer struct {
	Outcomes []Outcome // the newest first
	Partial  bool      // there are older ones that were not looked at, apart from those beyond Limit
}

// Reader reads outcomes. It is safe for concurrent use. Its one permission is to publish to
// $JS.API.DIRECT.GET.<stream>. The connection's errors go to Reader.Denied, or end the context of its calls.
type Reader struct {
	*denials
	connection *nats.Conn
	place      Place
}

// NewReader makes a reader. It reads nothing yet.
func NewReader(connection *nats.Conn, place Place) *Reader {
	r := &Reader{connection: connection, place: place}
	r.denials = newDenials(r.subject() + `"`)
	return r
}

// subject is where a reader sends its requests.
func (r *Reader) subject() string { return "$JS.API.DIRECT.GET." + r.place.Stream }

// List returns the newest outcomes that a filter selects. A request gets up to a thousand messages; it looks
// at 50,000 at most, and skips what is not a record. The error is ErrNoStream where nothing was ever
// recorded.
func (r *Reader) List(ctx context.Context, filter Filter) (Answer, error) {
	return r.list(ctx, filter, mostRead)
}

// list reads windows of sequences, the newest first. A category has a thousand messages at most, so all of it
// is tried at once. Otherwise windows grow where few messages are left in them.
func (r *Reader) list(ctx context.Context, filter Filter, most int) (answer Answer, err error) {
	if filter.Limit <= 0 {
		filter.Limit = defaultList
	}
	filter.EventID = short(filter.EventID, longestText)
	filter.Category = short(filter.Category, longestName)
	subject := r.place.all()
	if filter.Category != "" {
		subject = r.place.subject(filter.Category)
	}
	_, to, err := r.ask(ctx, get{Last: subject})
	size := uint64(pageMessages)
	if filter.Category != "" {
		size = max(to, size)
	}
	needle := filter.needle()
	for read := 0; err == nil && to > 0; {
		if read >= most {
			answer.Partial = true
			break
		}
		from := max(to, size) - size + 1
		messages, until, err := r.ask(ctx, get{Seq: from, Subject: subject, Batch: pageMessages})
		if err != nil {
			return Answer{}, err
		}
		messages = slices.DeleteFunc(messages, func(m message) bool { return m.seq > to })
		read += len(messages)
		if 0 < until && until < to && size > pageMessages {
			size = max(pageMessages, size/4)
			continue
		}
		for i := len(messages) - 1; i >= 0; i-- {
			m := messages[i]
			if m.stored.Before(filter.Since.Add(-clockSkew)) {
				return answer, nil
			}
			if !bytes.Contains(m.data, needle) {
				continue
			}
			o, ours := r.place.decode(m.subject, m.data)
			if !ours || !filter.selects(o) {
				continue
			}
			o.Seq = m.seq
			answer.Outcomes = append(answer.Outcomes, o)
			if len(answer.Outcomes) == filter.Limit {
				return answer, nil
			}
		}
		if len(messages) < pageMessages/8 {
			size *= 4
		}
		to = from - 1
	}
	return answer, err
}

// message is one message of the stream, which anybody may have published.
type message struct {
	subject string
	seq     uint64
	stored  time.Time
	data    []byte
}

// get is a request for messages, as the API has it.
type get struct {
	Seq     uint64 `json:"seq,omitempty"` // from here on
	Subject string `json:"next_by_subj,omitempty"`
	Last    string `json:"last_by_subj,omitempty"` // only the latest of this subject
	Batch   int    `json:"batch,omitempty"`
}

// ask requests messages. There are no others up to the sequence until; 0: there are none at all.
//
// It subscribes by itself: the client's own request takes a stored message with a status, which a publisher
// can forge, for an answer of the server.
func (r *Reader) ask(ctx context.Context, request get) (messages []message, until uint64, err error) {
	ctx, end := r.begin(ctx)
	defer end()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, 0, err
	}
	inbox, answers := r.connection.NewInbox(), make(chan *nats.Msg, pageMessages+1)
	subscription, err := r.connection.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = subscription.Unsubscribe() }() // an error means that the connection is closed
	if err := r.connection.PublishRequest(r.subject(), inbox, body); err != nil {
		return nil, 0, err
	}
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
		found, ok := r.parse(m)
		switch status, pending := m.Header.Get("Status"), m.Header.Get("Nats-Num-Pending"); {
		case ok && request.Batch == 0:
			return []message{found}, found.seq, nil
		case ok && len(m.Header.Values("Nats-Num-Pending")) == 0:
			return nil, 0, errors.New("the NATS server answers no batches; expected version 2.11 or newer")
		case ok:
			messages = append(messages, found)
		case status == "" && request.Batch > 0: // a message whose headers cannot be read is not a record
		case status == "204" && pending != "0": // the end of a batch
			until, err = strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
			return messages, until, err
		case status == "204":
			return messages, math.MaxUint64, nil
		case status == "404":
			return nil, 0, nil
		case status == "503":
			return nil, 0, ErrNoStream
		default:
			return nil, 0, fmt.Errorf("the server answers %q %s", status, m.Header.Get("Description"))
		}
	}
}

// parse reads what the server says about a stored message. A publisher can put headers of the same names into
// it, which come before the server's. An answer without a message has none of them.
func (r *Reader) parse(m *nats.Msg) (message, bool) {
	last := func(name string) string {
		values := m.Header.Values(name)
		if len(values) == 0 {
			return ""
		}
		return values[len(values)-1]
	}
	seq, unnumbered := strconv.ParseUint(last(jetstream.SequenceHeader), 10, 64)
	stored, undated := time.Parse(time.RFC3339Nano, last(jetstream.TimeStampHeaer))
	if last(jetstream.StreamHeader) != r.place.Stream || unnumbered != nil || undated != nil {
		return message{}, false
	}
	return message{subject: last(jetstream.SubjectHeader), seq: seq, stored: stored, data: m.Data}, true
}
