package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
	"golang.org/x/time/rate"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// publish connects to NATS, publishes the requested events and, with -wait, prints the outcome.
func publish(ctx context.Context, request publishRequest, root *cli.Command) error {
	loaded, err := settings.Load(settings.GroupNATS)
	if err != nil {
		return err
	}
	s := loaded.NATS
	subject, err := request.subject(s.Pattern)
	if err != nil {
		return err
	}
	if err := request.readFile(ctx); err != nil {
		return err
	}
	p := publisher{
		request: request, settings: s, subject: subject, newID: newID(), limit: rate.NewLimiter(rate.Inf, 1),
		out: root.Writer, notes: payloadNotes{out: root.ErrWriter},
	}
	if request.rate > 0 {
		p.limit.SetLimit(rate.Limit(request.rate))
	}
	if !request.input {
		if _, err := p.message(request.payload); err != nil {
			return err // before anything is connected
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	options := append(publisherOptions(s, request.inbox), endOnDenial(cancel))
	p.connection, err = s.Connect(s.URL, options...)
	if err != nil {
		return fmt.Errorf("NATS_URL: no connection to %s: %w", s.Servers(), err)
	}
	defer p.connection.Close()
	if p.js, err = jetstream.New(p.connection); err != nil {
		return err
	}
	if request.wait > 0 {
		if p.waiter, err = newWaiter(ctx, p.connection, s, request.category, p.id); err != nil {
			return interrupted(err)
		}
	}
	err = p.all(ctx, root.Reader)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err := p.finish(err); err != nil || p.waiter == nil {
		return err
	}
	return interrupted(p.wait(ctx))
}

func newID() string { return strings.ToLower(rand.Text()[:16]) }

// interrupted replaces a cancellation with a readable error and returns other errors unchanged.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// wait shows the outcome of the only event.
func (p *publisher) wait(ctx context.Context) error {
	seq := p.stored.Sequence
	if p.stored.Stream != p.settings.Stream {
		seq = 0 // of another stream than the workers'
	}
	found, err := p.waiter.await(ctx, seq, p.request.wait)
	if err != nil {
		err = fmt.Errorf("event %d: %w", p.stored.Sequence, err)
		if p.request.json {
			err = errors.Join(p.writeJSON(nil), err)
		}
		return err
	}
	if p.request.json {
		err = p.writeJSON(&found)
	} else {
		_, err = fmt.Fprintf(p.out, "%s: event %d: %s\n",
			p.subject, p.stored.Sequence, outcomeLine(found))
	}
	if err == nil && found.Outcome != outcome.Sent {
		return cli.Exit("", exitUnsent)
	}
	return err
}

// publishedEvent is the -json output for one event. With -wait it includes the outcome.
type publishedEvent struct {
	EventID   string `json:"event_id"`
	Category  string `json:"category"`
	Subject   string `json:"subject"`
	Stream    string `json:"stream"`
	StreamSeq uint64 `json:"stream_seq"`
	Duplicate bool   `json:"duplicate,omitempty"` // the stream had an event with this id, at this sequence
	*outcome.Record
}

// writeJSON shows the last event. The record is nil if its outcome is unknown.
func (p *publisher) writeJSON(record *outcome.Record) error {
	return term.NewJSON(p.out).Encode(publishedEvent{
		EventID: p.id, Category: p.request.category, Subject: p.subject, Stream: p.stored.Stream,
		StreamSeq: p.stored.Sequence, Duplicate: p.stored.Duplicate, Record: record,
	})
}

// publisher publishes to one subject, one after the other.
type publisher struct {
	request    publishRequest
	settings   settings.NATS
	subject    string
	newID      string // for the next event without an id
	connection *nats.Conn
	js         jetstream.JetStream
	out        io.Writer
	notes      payloadNotes
	limit      *rate.Limiter
	published  int
	first      *jetstream.PubAck // of the first event that was stored, and of the last
	last       *jetstream.PubAck
	stored     *jetstream.PubAck // of the last event, also if it was stored before
	id         string            // of the last event
	waiter     *waiter           // nil without -wait
	reported   time.Time
}

func (p *publisher) all(ctx context.Context, in io.Reader) error {
	for next := range p.request.payloads(ctx, in) {
		err := next.err
		if err == nil {
			err = p.one(ctx, next.text)
		}
		if err != nil {
			return next.failed(err)
		}
	}
	return nil
}

// message builds the NATS message. It rejects a payload that every worker would reject, while the author can
// still fix it. Worker settings (size, channels, limits) are unknown here and not checked. An event without
// an id gets one, so that its author can look it up.
func (p *publisher) message(payload string) (*nats.Msg, error) {
	message := nats.NewMsg(p.subject)
	message.Data = []byte(payload)
	message.Header = maps.Clone(p.request.header)
	decodable := event.Message{
		Subject: message.Subject, Header: message.Header, Data: message.Data,
		FallbackID: p.newID, Published: time.Now(),
	}
	rules := event.Rules{
		Pattern: p.settings.Pattern, MaxBytes: longestPayload,
		ChannelAllowed: func(string) bool { return true },
	}
	decoded, rejection := event.Decode(decodable, rules)
	p.notes.source(decodable, decoded)
	if rejection != nil {
		return nil, &cmdline.UsageError{Text: rejection.Detail + asText(decodable, rules)}
	}
	if p.id = decoded.ID; p.id == p.newID {
		message.Header.Set(nats.MsgIdHdr, p.id)
	}
	return message, nil
}

func (p *publisher) one(ctx context.Context, payload string) error {
	message, err := p.message(payload)
	if err != nil {
		return err
	}
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	ack, err := p.js.PublishMsg(ctx, message)
	switch {
	case errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream stores %s; expected one such as %s, which the first %q creates",
			p.subject, p.settings.Stream, "notifier serve")
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("payload has %d bytes, the server accepts at most %d with headers",
			len(message.Data), p.connection.MaxPayload())
	case isFull(err):
		return fmt.Errorf("the stream of %s is full; publish again when workers have read it, or raise its "+
			"limits: \"notifier check\" shows them", p.subject)
	case err != nil:
		return err
	}
	p.stored, p.newID = ack, newID()
	if !ack.Duplicate {
		if p.last = ack; p.first == nil {
			p.first = ack
		}
		p.published++
	}
	switch {
	case p.request.json && p.waiter != nil:
		return nil // it is shown with its outcome
	case p.request.json:
		return p.writeJSON(nil)
	case ack.Duplicate:
		_, err := fmt.Fprintf(p.out, "%s: duplicate, id %q was published before: event %d of stream %s\n",
			p.subject, p.id, ack.Sequence, ack.Stream)
		return err
	}
	return p.progress()
}

// isFull reports whether a stream refused a message because of its own limits.
func isFull(err error) bool {
	refused := (*jetstream.APIError)(nil)
	return errors.As(err, &refused) && strings.HasPrefix(refused.Description, "maximum ") &&
		strings.HasSuffix(refused.Description, " exceeded")
}

// progress writes once a second how far it is.
func (p *publisher) progress() error {
	now := time.Now()
	if p.reported.IsZero() {
		p.reported = now
	}
	if now.Sub(p.reported) < time.Second {
		return nil
	}
	p.reported = now
	_, err := fmt.Fprintf(p.out, "%d published so far\n", p.published)
	return err
}

// finish prints the number of published events unless the connection failed. The server reports a denial
// asynchronously, so finish flushes before it checks for one.
func (p *publisher) finish(failure error) error {
	if err := p.connection.Flush(); err != nil {
		return errors.Join(failure, fmt.Errorf("NATS: %w", err))
	}
	if denied := p.connection.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		failure = fmt.Errorf("%w; docs/security.md has the permissions of a publisher, whose "+
			"acknowledgements arrive below -inbox-prefix; "+
			"under compose docker compose run --rm cli has them", denied)
	}
	if p.request.json {
		return failure
	}
	lines := fmt.Sprintf("%d published to %s\n", p.published, p.subject)
	if what := p.what(); what != "" {
		lines = p.subject + ": " + what + "\n" + lines
	}
	_, err := io.WriteString(p.out, lines)
	return errors.Join(failure, err)
}

// The text names the stream and the sequences of the published events, and the id of a single one.
func (p *publisher) what() string {
	var parts []string
	switch {
	case p.published == 0:
		return ""
	case p.first.Sequence == p.last.Sequence:
		parts = append(parts, fmt.Sprintf("event %d of stream %s", p.first.Sequence, p.first.Stream))
	default:
		parts = append(parts, fmt.Sprintf("events %d to %d of stream %s",
			p.first.Sequence, p.last.Sequence, p.first.Stream))
	}
	if p.request.single() {
		parts = append(parts, "id "+p.id)
	}
	return strings.Join(parts, ", ")
}
