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
)

// longestLine bounds one line of standard input: NATS' own upper bound of a payload.
const longestLine = largestEvent

func publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish one event, or one per line of standard input",
		ArgsUsage: "CATEGORY [TEXT | -]",
		Description: `The event goes to NATS_SUBJECT with CATEGORY in place of its wildcard. TEXT is sent as plain text, whatever it
looks like; with -json it is a JSON payload (text, blocks, id, channel, thread_ts, cost, time).
Without TEXT the text is "test notification"; with - each line of standard input is one event. A payload that
no worker could read is refused here.

Examples:
   notifier publish errors "disk full"
   notifier publish deploys -json '{"text":"v1.2.3 is out","cost":2}'
   notifier publish errors -n 1000 -rate 200 "error storm"
   journalctl -f -u api | notifier publish api -`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "publish it `N` times"},
			&cli.FloatFlag{Name: "rate", Usage: "publish at most `R` events per second; without it as fast as possible"},
			&cli.StringFlag{Name: "id", Usage: "give the event this `ID`: one that was sent before is not sent again"},
			&cli.BoolFlag{Name: "json", Usage: "TEXT, or each line, is a JSON payload"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			order, err := parsePublish(cmd)
			if err != nil {
				return err
			}
			settings, err := loadNATSConfig()
			if err != nil {
				return err
			}
			return publish(ctx, settings, order, cmd.Root().Reader, cmd.Root().Writer)
		},
	}
}

// publishOrder is what a user wants published.
type publishOrder struct {
	category string
	text     string
	lines    bool // the texts are the lines of standard input
	json     bool
	id       string
	count    int
	rate     float64 // events per second; 0: unbounded
}

func parsePublish(cmd *cli.Command) (publishOrder, error) {
	order := publishOrder{
		category: cmd.Args().First(), text: "test notification",
		json: cmd.Bool("json"), id: cmd.String("id"), count: cmd.Int("n"), rate: cmd.Float("rate"),
	}
	switch {
	case cmd.NArg() == 0:
		return order, usage(cmd, "no CATEGORY")
	case cmd.NArg() > 2:
		return order, usage(cmd, fmt.Sprintf("unexpected argument %q; a TEXT of several words is put in quotes", cmd.Args().Get(2)))
	case cmd.NArg() == 2 && cmd.Args().Get(1) == "-":
		order.lines = true
	case cmd.NArg() == 2:
		order.text = cmd.Args().Get(1)
	case order.json:
		return order, usage(cmd, "no TEXT: -json needs a payload")
	}
	switch {
	case order.count < 1:
		return order, usage(cmd, fmt.Sprintf("-n %d, expected 1 or more", order.count))
	case math.IsNaN(order.rate) || order.rate < 0:
		return order, usage(cmd, fmt.Sprintf("-rate %g, expected 0 or more", order.rate))
	case order.lines && order.count > 1:
		return order, usage(cmd, "-n with -: each line is one event")
	case order.id != "" && (order.lines || order.count > 1):
		return order, usage(cmd, "-id names one event: expected it without - and without -n")
	}
	return order, nil
}

func publish(ctx context.Context, settings natsConfig, order publishOrder, in io.Reader, out io.Writer) error {
	subject, err := settings.pattern.Subject(order.category)
	if err != nil {
		return &usageError{err.Error()}
	}
	p := publisher{order: order, settings: settings, subject: subject, out: out, limit: rate.NewLimiter(rate.Inf, 1)}
	if order.rate > 0 {
		p.limit.SetLimit(rate.Limit(order.rate))
	}
	if !order.lines {
		if err := p.check(p.message(order.text)); err != nil {
			return err // before anything is connected
		}
	}
	p.connection, err = nats.Connect(settings.url, natsOptions(settings, "notifier publish")...)
	if err != nil {
		return fmt.Errorf("NATS_URL: no connection to %s: %w", settings.servers(), err)
	}
	defer p.connection.Close()
	if p.js, err = jetstream.New(p.connection); err != nil {
		return err
	}
	if order.lines {
		err = p.lines(ctx, in)
	} else {
		err = p.repeat(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return errors.Join(err, p.finish())
}

// publisher publishes to one subject, one after the other.
type publisher struct {
	order      publishOrder
	settings   natsConfig
	subject    string
	connection *nats.Conn
	js         jetstream.JetStream
	out        io.Writer
	limit      *rate.Limiter
	published  int
	told       time.Time
}

func (p *publisher) repeat(ctx context.Context) error {
	for range p.order.count {
		if err := p.one(ctx, p.order.text); err != nil {
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

// readLines reads in a goroutine of its own, because nothing else can be waited for beside a read from a terminal. The
// goroutine ends with the input, or after the next line once ctx has ended.
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
	if p.order.id != "" {
		message.Header.Set(nats.MsgIdHdr, p.order.id)
	}
	if !p.order.json {
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
	if p.settings.core {
		if err := p.connection.PublishMsg(message); err != nil {
			return err
		}
	} else {
		ack, err := p.js.PublishMsg(ctx, message)
		if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
			return fmt.Errorf("no stream takes %s, expected one such as %s, which the first \"notifier serve\" creates", p.subject, p.settings.stream)
		}
		if err != nil {
			return err
		}
		if ack.Duplicate {
			_, err := fmt.Fprintf(p.out, "%s: a duplicate, id %q was published before\n", p.subject, p.order.id)
			return err
		}
	}
	p.published++
	return p.progress()
}

// check refuses a payload that no worker would take: the author is here and can mend it. What depends on a worker's
// settings (size, channels, limits) is not known here.
func (p *publisher) check(message *nats.Msg) error {
	_, rejection := event.Decode(event.Message{
		Subject: message.Subject, Header: message.Header, Data: message.Data, FallbackID: "check", Published: time.Now(),
	}, event.Rules{
		Pattern: p.settings.pattern, MaxBytes: largestEvent, ChannelAllowed: func(string) bool { return true },
	})
	if rejection != nil {
		return &usageError{rejection.Detail}
	}
	if p.order.json && !strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(string(message.Data), "\uFEFF")), "{") {
		return &usageError{"payload is no JSON object, expected one such as {\"text\":\"disk full\"}"} // it would pass as plain text
	}
	return nil
}

// progress says once a second how far it is.
func (p *publisher) progress() error {
	now := time.Now()
	if p.told.IsZero() {
		p.told = now
	}
	if now.Sub(p.told) < time.Second {
		return nil
	}
	p.told = now
	_, err := fmt.Fprintf(p.out, "%d published so far\n", p.published)
	return err
}

func (p *publisher) finish() error {
	if err := p.connection.Flush(); err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	_, err := fmt.Fprintf(p.out, "%d published to %s\n", p.published, p.subject)
	return err
}
