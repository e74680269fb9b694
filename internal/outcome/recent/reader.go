package recent

import (
	"cmp"
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

	"notifier/internal/denial"
	"notifier/internal/outcome"
)

const (
	batchSize    = 1000   // messages of one request
	maxRead      = 50_000 // messages for one call
	defaultLimit = 100
	clockSkew    = time.Minute // between a worker and the server
)

// ErrNoStream means that the stream does not exist or does not allow direct reads.
var ErrNoStream = errors.New("there is no stream of outcomes")

// Filter selects records. The zero value selects the newest 100.
type Filter struct {
	Category string    // exact; empty selects all
	Outcome  string    // one of Outcomes; empty selects all
	Since    time.Time // records of this time or later
	Limit    int       // maximum number of records; zero means 100
	MaxRead  int       // maximum number of messages to read for them; zero means 50,000
}

func (f Filter) selects(r outcome.Record) bool {
	return (f.Category == "" || f.Category == r.Category) &&
		(f.Outcome == "" || f.Outcome == r.Outcome) &&
		!r.Time.Before(f.Since)
}

// Page holds the newest records that a filter selects.
type Page struct {
	Records []outcome.Record // the newest last
	More    bool             // older records exist, or were not read
}

// Reader reads records. It is safe for concurrent use. Its user needs permission to publish to
// $JS.API.DIRECT.GET.<stream>. The owner of the connection passes errors of the connection to Reader.Denied,
// or ends the context of a call.
type Reader struct {
	*denial.Watch
	connection *nats.Conn
	place      Place
}

// NewReader makes a reader.
func NewReader(connection *nats.Conn, place Place) *Reader {
	r := &Reader{connection: connection, place: place}
	r.Watch = denial.NewWatch(place.DirectGet() + `"`)
	return r
}

// Of returns the newest 1000 records of an event id, the oldest first. An empty category selects all. It
// returns none if nothing is recorded, and ErrNoStream if there is no stream.
//
// It reads past messages that are no records: anyone can store some of them on the subjects of a known id.
func (r *Reader) Of(ctx context.Context, eventID, category string) (records []outcome.Record, err error) {
	eventID, category = short(eventID, maxText), short(category, maxName)
	subject := r.place.Subject + "." + hash(eventID) + ".>"
	if category != "" {
		subject = r.place.subject(hash(eventID), category)
	}
	for begin, read := uint64(1), 0; begin > 0 && read < maxRead; {
		messages, until, err := r.get(ctx, request{Seq: begin, Next: subject, Batch: batchSize})
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			record, ok := r.decode(m)
			if ok && record.EventID == eventID && (category == "" || record.Category == category) {
				records = append(records, record)
			}
		}
		records = records[max(0, len(records)-batchSize):]
		read += len(messages)
		if until < begin {
			break
		}
		begin = until + 1 // 0 after the last batch
	}
	return records, nil
}

// List returns the newest records that a filter selects. It returns ErrNoStream if there is no stream.
//
// It reads backward, in windows of sequences. A request returns the messages of a window in order, 1000 at
// most, so a window with more of them is tried again at a quarter of its size. A sparse window is followed by
// a larger one.
func (r *Reader) List(ctx context.Context, f Filter) (page Page, err error) {
	f.Limit = cmp.Or(max(0, f.Limit), defaultLimit)
	f.MaxRead = cmp.Or(max(0, f.MaxRead), maxRead)
	subject := r.place.all()
	if f.Category != "" {
		f.Category = short(f.Category, maxName)
		subject = r.place.subject("*", f.Category)
	}
	_, end, err := r.get(ctx, request{Last: subject})
	window := uint64(batchSize)
	for read := 0; err == nil && end > 0 && !page.More; {
		begin := end - min(window, end) + 1
		var messages []message
		var until uint64
		messages, until, err = r.get(ctx, request{Seq: begin, Next: subject, Batch: batchSize})
		read += max(1, len(messages))
		if 0 < until && until < end && window > 1 {
			window = max(1, window/4)
			continue
		}
		messages = slices.DeleteFunc(messages, func(m message) bool { return m.seq > end }) // read before
		if len(messages) < batchSize/8 {
			window *= 4
		}
		end = begin - 1
		for _, m := range slices.Backward(messages) {
			if m.stored.Before(f.Since.Add(-clockSkew)) {
				end = 0
				break
			}
			record, ok := r.decode(m)
			if !ok || !f.selects(record) {
				continue
			}
			if page.More = len(page.Records) == f.Limit; page.More {
				break
			}
			page.Records = append(page.Records, record)
		}
		page.More = page.More || read >= f.MaxRead && end > 0
	}
	slices.Reverse(page.Records)
	return page, err
}

// decode reads a stored message.
func (r *Reader) decode(m message) (record outcome.Record, ok bool) {
	record, ok = r.place.decode(m.subject, m.data)
	record.Seq = m.seq
	return record, ok
}

// message is a message of the stream, from any client.
type message struct {
	subject string
	seq     uint64
	stored  time.Time
	data    []byte
}

// request selects messages, in the format of the JetStream API.
type request struct {
	Seq   uint64 `json:"seq,omitempty"`          // the first one's, or later
	Next  string `json:"next_by_subj,omitempty"` // subject
	Last  string `json:"last_by_subj,omitempty"` // subject; returns its newest message alone
	Batch int    `json:"batch,omitempty"`        // maximum number of messages; with Next
}

// get requests messages. The reply is complete up to the sequence until, which is 0 if there are no messages.
//
// get subscribes by itself. The client's own request would take a stored message with a Status header, which
// any publisher can write, for a reply of the server.
func (r *Reader) get(ctx context.Context, request request) (messages []message, until uint64, err error) {
	if r.connection.IsReconnecting() { // the request would wait for a server until its time is up
		return nil, 0, nats.ErrDisconnected
	}
	ctx, end := begin(ctx, r.Watch)
	defer end()
	body, err := json.Marshal(request)
	if err != nil {
		return nil, 0, err
	}
	inbox, replies := r.connection.NewInbox(), make(chan *nats.Msg, batchSize+1)
	subscription, err := r.connection.ChanSubscribe(inbox, replies)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = subscription.Unsubscribe() }() // fails only if the connection is closed
	if err := r.connection.PublishRequest(r.place.DirectGet(), inbox, body); err != nil {
		return nil, 0, err
	}
	for {
		var m *nats.Msg
		select {
		case m = <-replies:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
		found, ok := r.parse(m)
		switch status, pending := m.Header.Get("Status"), m.Header.Get("Nats-Num-Pending"); {
		case ok && request.Batch == 0:
			return []message{found}, found.seq, nil
		case ok:
			messages = append(messages, found)
		case status == "" && request.Batch > 0: // its headers are broken, so it is no record
		case status == "204" && pending != "0": // end of a batch
			until, err = strconv.ParseUint(m.Header.Get(jetstream.LastSequenceHeader), 10, 64)
			return messages, until, err
		case status == "204":
			return messages, math.MaxUint64, nil
		case status == "404":
			return nil, 0, nil
		case status == "503":
			return nil, 0, ErrNoStream
		default:
			return nil, 0, fmt.Errorf("unexpected reply of the server: %q %s", status, m.Header.Get("Description"))
		}
	}
}

// parse reads the headers that the server adds to a stored message. The message may have headers of the same
// names, which come first. It returns false for a reply without a message.
func (r *Reader) parse(m *nats.Msg) (message, bool) {
	last := func(name string) string {
		values := m.Header.Values(name)
		if len(values) == 0 {
			return ""
		}
		return values[len(values)-1]
	}
	seq, seqErr := strconv.ParseUint(last(jetstream.SequenceHeader), 10, 64)
	stored, timeErr := time.Parse(time.RFC3339Nano, last(jetstream.TimeStampHeaer))
	if last(jetstream.StreamHeader) != r.place.Stream || seqErr != nil || timeErr != nil {
		return message{}, false
	}
	return message{subject: last(jetstream.SubjectHeader), seq: seq, stored: stored, data: m.Data}, true
}
