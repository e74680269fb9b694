package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"
	"golang.org/x/time/rate"

	"notifier/internal/event"
	"notifier/internal/settings"
)

// longestLine bounds one line of standard input: NATS' own upper bound of a payload.
const longestLine = settings.LargestEvent

func publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish one event, or one per line of standard input",
		ArgsUsage: "CATEGORY [TEXT | -]",
		Description: `The event goes to NATS_SUBJECT, with CATEGORY in place of the wildcard. TEXT is sent as plain text, whatever it
looks like; with -json it is a JSON payload (text, blocks, id, channel, thread_ts, cost, time).
Without TEXT the text is "test notification"; with - each line of standard input is one event. A payload that
no worker could read is rejected here.

Examples:
   notifier publish errors "disk full"
   notifier publish deploys -json '{"text":"v1.2.3 is out","cost":2}'
   notifier publish errors -n 1000 -rate 200 "error storm"
   journalctl -f -u api | notifier publish api -`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "publish it `N` times"},
			&cli.FloatFlag{Name: "rate", Usage: "publish at most `R` events per second; by default as fast as possible"},
			&cli.StringFlag{Name: "id", Usage: "give the event this `ID`: an id that was sent before is not sent again"},
			&cli.BoolFlag{Name: "json", Usage: "TEXT, or each line, is a JSON payload"},
			&cli.StringFlag{Name: "inbox-prefix", Value: settings.PublisherInbox, Usage: "receive acknowledgements below `SUBJECT`"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			request, err := parsePublish(cmd)
			if err != nil {
				return err
			}
			s, err := settings.LoadNATS()
			if err != nil {
				return err
			}
			return publish(ctx, s, request, cmd.Root().Reader, cmd.Root().Writer)
		},
	}
}

// publishRequest is what a user wants published.
type publishRequest struct {
	category string
	text     string
	lines    bool // the texts are the lines of standard input
	json     bool
	id       string
	count    int
	rate     float64 // events per second; 0: unbounded
	inbox    string  // prefix of the subjects at which acknowledgements arrive
}

func parsePublish(cmd *cli.Command) (publishRequest, error) {
	request := publishRequest{
		category: cmd.Args().First(), text: "test notification",
		json: cmd.Bool("json"), id: cmd.String("id"), count: cmd.Int("n"), rate: cmd.Float("rate"),
		inbox: cmd.String("inbox-prefix"),
	}
	switch {
	case cmd.NArg() == 0:
		return request, usage(cmd, "missing CATEGORY")
	case cmd.NArg() > 2:
		return request, usage(cmd, fmt.Sprintf("unexpected argument %q; put a TEXT of several words in quotes", cmd.Args().Get(2)))
	case cmd.NArg() == 2 && cmd.Args().Get(1) == "-":
		request.lines = true
	case cmd.NArg() == 2:
		request.text = cmd.Args().Get(1)
	case request.json:
		return request, usage(cmd, "missing TEXT: -json needs a payload")
	}
	switch {
	case request.count < 1:
		return request, usage(cmd, fmt.Sprintf("-n %d, expected 1 or more", request.count))
	case math.IsNaN(request.rate) || request.rate < 0:
		return request, usage(cmd, fmt.Sprintf("-rate %g, expected 0 or more", request.rate))
	case request.lines && request.count > 1:
		return request, usage(cmd, "-n cannot be used with -: each line is one event")
	case request.id != "" && (request.lines || request.count > 1):
		return request, usage(cmd, "-id names one event: it cannot be used with - or -n")
	case !settings.IsInboxPrefix(request.inbox):
		return request, usage(cmd, fmt.Sprintf("-inbox-prefix %q, expected a subject without wildcards such as %s", request.inbox, settings.PublisherInbox))
	}
	return request, nil
}

func publish(ctx context.Context, s settings.NATS, request publishRequest, in io.Reader, out io.Writer) error {
	subject, err := s.Pattern.Subject(request.category)
	if err != nil {
		return &usageError{err.Error()}
	}
	p := publisher{request: request, settings: s, subject: subject, out: out, limit: rate.NewLimiter(rate.Inf, 1)}
	if request.rate > 0 {
		p.limit.SetLimit(rate.Limit(request.rate))
	}
	if !request.lines {
		if err := p.check(p.message(request.text)); err != nil {
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
	if request.lines {
		err = p.lines(ctx, in)
	} else {
		err = p.repeat(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return p.finish(err)
}

// publisher publishes to one subject, one after the other.
type publisher struct {
	request    publishRequest
	settings   settings.NATS
	subject    string
	connection *nats.Conn
	js         jetstream.JetStream
	out        io.Writer
	limit      *rate.Limiter
	published  int
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

func (p *publisher) lines(ctx context.Context, in io.Reader) error {
	lines := readLines(ctx, in)
	for number := 1; ; number++ {
		var next line
		select {
		case next = <-lines:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case errors.Is(next.err, io.EOF):
			return nil
		case next.err != nil:
			return fmt.Errorf("standard input: line %d: %w", number, next.err)
		case strings.TrimSpace(next.text) == "":
			continue
		}
		if err := p.one(ctx, next.text); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

// line is a line without its end (of Unix or Windows), or the reason why there is none: io.EOF after the last.
type line struct {
	text string
	err  error
}

// readLines reads in a goroutine of its own, because a read from a terminal cannot be interrupted. The goroutine ends with the input, or after the next line once ctx has ended.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, longestLine)
		end := io.EOF
		for scanner.Scan() {
			select {
			case lines <- line{text: scanner.Text()}:
			case <-ctx.Done():
				return
			}
		}
		if err := scanner.Err(); err != nil {
			end = err
		}
		select {
		case lines <- line{err: end}:
		case <-ctx.Done():
		}
	}()
	return lines
}

func (p *publisher) message(text string) *nats.Msg {
	message := nats.NewMsg(p.subject)
	message.Data = []byte(text)
	if p.request.id != "" {
		message.Header.Set(nats.MsgIdHdr, p.request.id)
	}
	if !p.request.json {
		message.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	return message
}

func (p *publisher) one(ctx context.Context, text string) error {
	message := p.message(text)
	if err := p.check(message); err != nil {
		return err
	}
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	if p.settings.Core {
		if err := p.connection.PublishMsg(message); err != nil {
			return err
		}
	} else {
		ack, err := p.js.PublishMsg(ctx, message)
		if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
			return fmt.Errorf("no stream stores %s; expected one such as %s, which the first \"notifier serve\" creates", p.subject, p.settings.Stream)
		}
		if err != nil {
			return err
		}
		if ack.Duplicate {
			_, err := fmt.Fprintf(p.out, "%s: duplicate, id %q was published before\n", p.subject, p.request.id)
			return err
		}
	}
	p.published++
	return p.progress()
}

// check rejects a payload that no worker would take: the author is here and can fix it. What depends on the settings of a
// worker (size, channels, limits) is not known here.
func (p *publisher) check(message *nats.Msg) error {
	_, rejection := event.Decode(event.Message{
		Subject: message.Subject, Header: message.Header, Data: message.Data, FallbackID: "check", Published: time.Now(),
	}, event.Rules{
		Pattern: p.settings.Pattern, MaxBytes: settings.LargestEvent, ChannelAllowed: func(string) bool { return true },
	})
	if rejection != nil {
		return &usageError{rejection.Detail}
	}
	if p.request.json && !strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(string(message.Data), "\uFEFF")), "{") {
		return &usageError{"payload is not a JSON object, expected one such as {\"text\":\"disk full\"}"} // it would pass as plain text
	}
	return nil
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

// finish writes how many were published, where that is known. A server reports what it denies in a message of its own, and
// core NATS has no other answer.
func (p *publisher) finish(failure error) error {
	if err := p.connection.Flush(); err != nil {
		return errors.Join(failure, fmt.Errorf("NATS: %w", err))
	}
	if denied := p.connection.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		if p.settings.Core {
			p.published = 0
		}
		failure = fmt.Errorf("%w; the permissions of a publisher are in docs/security.md, and -inbox-prefix is where acknowledgements arrive", denied)
	}
	_, err := fmt.Fprintf(p.out, "%d published to %s\n", p.published, p.subject)
	return errors.Join(failure, err)
}
