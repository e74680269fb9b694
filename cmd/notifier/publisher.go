package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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
)

func publish(
	ctx context.Context, s settings.NATS, request publishRequest, in io.Reader, out, errOut io.Writer,
) error {
	subject, err := subjectOf(s.Pattern, request.category)
	if err != nil {
		_, repeated := s.Pattern.Repeated(request.category)
		if _, no := subjectOf(s.Pattern, request.text); no == nil && request.hasText && !repeated {
			return &cmdline.UsageError{Text: fmt.Sprintf("%q is not a category; are CATEGORY and TEXT swapped?", request.category)}
		}
		return &cmdline.UsageError{Text: err.Error()}
	}
	p := publisher{
		request: request, settings: s, subject: subject, out: out, notes: payloadNotes{out: errOut}, limit: rate.NewLimiter(rate.Inf, 1),
		newID: strings.ToLower(rand.Text()[:16]),
	}
	if request.rate > 0 {
		p.limit.SetLimit(rate.Limit(request.rate))
	}
	if !request.input {
		if _, err := p.message(request.text); err != nil {
			return err // before anything is connected
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.connection, err = nats.Connect(s.URL, append(s.PublisherOptions("notifier publish", request.inbox), endOnDenial(cancel))...)
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
	if request.input {
		err = p.all(ctx, in)
	} else {
		err = p.repeat(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err := p.finish(err); err != nil || p.waiter == nil {
		return err
	}
	return interrupted(p.wait(ctx))
}

// interrupted is the error of somebody who did not want to wait any longer, or err.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// wait shows what became of the only event.
func (p *publisher) wait(ctx context.Context) error {
	seq := p.stored.Sequence
	if p.stored.Stream != p.settings.Stream {
		seq = 0 // of another stream than the workers'
	}
	found, first, err := p.waiter.await(ctx, seq, p.request.wait)
	if err != nil {
		return fmt.Errorf("event %d: %w", p.stored.Sequence, err)
	}
	if _, err = fmt.Fprintf(p.out, "%s: event %d: %s\n", p.subject, p.stored.Sequence, outcomeLine(found, first)); err != nil {
		return err
	}
	if found.Outcome != outcome.Sent {
		return cli.Exit("", exitUnsent)
	}
	return nil
}

// publisher publishes to one subject, one after the other.
type publisher struct {
	request    publishRequest
	settings   settings.NATS
	subject    string
	newID      string // of an event that has none
	connection *nats.Conn
	js         jetstream.JetStream
	out        io.Writer
	notes      payloadNotes
	limit      *rate.Limiter
	published  int
	first      *jetstream.PubAck // of the first event that was stored, and of the last
	last       *jetstream.PubAck
	stored     *jetstream.PubAck // of the last event, also if it was stored before
	id         string            // of the only event
	waiter     *waiter           // for the only event; nil: nobody waits
	reported   time.Time
}

func (p *publisher) repeat(ctx context.Context) error {
	for range p.request.count {
		if err := p.one(ctx, p.request.text); err != nil {
			return err
		}
	}
	return nil
}

// all publishes what is in standard input.
func (p *publisher) all(ctx context.Context, in io.Reader) error {
	texts := readTexts(ctx, in, p.request.json)
	for {
		var next text
		select {
		case next = <-texts:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case errors.Is(next.err, io.EOF):
			return nil
		case next.err != nil:
			return fmt.Errorf("standard input: %s: %w", next.where, next.err)
		}
		if err := p.one(ctx, next.text); err != nil {
			return fmt.Errorf("standard input: %s: %w", next.where, err)
		}
	}
}

// message is the event as it is published. A payload that no worker would take is rejected: the author is here and can fix it.
// What depends on the settings of a worker (size, channels, limits) is not known here. The only event gets an id where it has
// none, so that its author knows it.
func (p *publisher) message(text string) (*nats.Msg, error) {
	message := nats.NewMsg(p.subject)
	message.Data = []byte(text)
	if p.request.id != "" {
		message.Header.Set(nats.MsgIdHdr, p.request.id)
	}
	if !p.request.json {
		message.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	decodable := event.Message{
		Subject: message.Subject, Header: message.Header, Data: message.Data, FallbackID: p.newID, Published: time.Now(),
	}
	decoded, rejection := event.Decode(decodable, event.Rules{
		Pattern: p.settings.Pattern, MaxBytes: settings.LargestEvent, ChannelAllowed: func(string) bool { return true },
	})
	if p.request.json {
		p.notes.unread(decodable)
	}
	if rejection != nil {
		return nil, &cmdline.UsageError{Text: rejection.Detail}
	}
	if !p.request.json {
		p.notes.asText(message.Data)
	}
	if p.request.json && !strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(text, "\uFEFF")), "{") {
		return nil, &cmdline.UsageError{Text: "payload is not a JSON object, expected one such as {\"text\":\"disk full\"}"} // it would pass as plain text
	}
	if p.request.single() {
		if p.id = decoded.ID; p.id == p.newID {
			message.Header.Set(nats.MsgIdHdr, p.newID)
		}
	}
	return message, nil
}

func (p *publisher) one(ctx context.Context, text string) error {
	message, err := p.message(text)
	if err != nil {
		return err
	}
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	ack, err := p.js.PublishMsg(ctx, message)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		return fmt.Errorf("no stream stores %s; expected one such as %s, which the first \"notifier serve\" creates", p.subject, p.settings.Stream)
	}
	if err != nil {
		return err
	}
	p.stored = ack
	if ack.Duplicate {
		_, err := fmt.Fprintf(p.out, "%s: duplicate, id %q was published before: event %d of stream %s\n", p.subject, p.request.id, ack.Sequence, ack.Stream)
		return err
	}
	if p.last = ack; p.first == nil {
		p.first = ack
	}
	p.published++
	return p.progress()
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

// finish writes what was published, where that is known. A server reports what it denies in a message of its own.
func (p *publisher) finish(failure error) error {
	if err := p.connection.Flush(); err != nil {
		return errors.Join(failure, fmt.Errorf("NATS: %w", err))
	}
	if denied := p.connection.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		failure = fmt.Errorf("%w; docs/security.md has the permissions of a publisher, whose acknowledgements arrive below -inbox-prefix; "+
			"under compose docker compose run --rm publish has them", denied)
	}
	lines := fmt.Sprintf("%d published to %s\n", p.published, p.subject)
	if what := p.what(); what != "" {
		lines = p.subject + ": " + what + "\n" + lines
	}
	_, err := io.WriteString(p.out, lines)
	return errors.Join(failure, err)
}

// what names the events that were published: the place in the stream that has acknowledged them, and the id of the only one.
func (p *publisher) what() string {
	var parts []string
	switch {
	case p.published == 0:
		return ""
	case p.first.Sequence == p.last.Sequence:
		parts = append(parts, fmt.Sprintf("event %d of stream %s", p.first.Sequence, p.first.Stream))
	default:
		parts = append(parts, fmt.Sprintf("events %d to %d of stream %s", p.first.Sequence, p.last.Sequence, p.first.Stream))
	}
	if p.id != "" {
		parts = append(parts, "id "+p.id)
	}
	return strings.Join(parts, ", ")
}
