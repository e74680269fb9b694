package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/denial"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/term"
)

const (
	maxPayload = settings.LargestEvent // bytes; no NATS server accepts more

	// maxInFlight bounds the events without an acknowledgement: enough for 10,000 events in five seconds over
	// a slow network, few enough to hold in memory.
	maxInFlight = 100

	// ackGrace bounds the wait for acknowledgements after an interruption.
	ackGrace = time.Second
)

func publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish one event, or one per line of standard input",
		ArgsUsage: "CATEGORY [PAYLOAD | @FILE | -]",
		Description: `Publishes the payload as it is: text, a JSON object or a CloudEvent. Without PAYLOAD it
is the text "test notification". @FILE publishes a file as one payload; a PAYLOAD that begins with @ is
written with @@. With - each line of standard input is one payload; empty lines are skipped. A payload that
begins with { is read as JSON; -header "Content-Type: text/plain" makes it text. One that no worker could
decode is refused.

CATEGORY replaces the wildcard of NATS_SUBJECT. An event without an id gets one, for "notifier why". With
-wait the exit code is 3 if an event was not sent, and 1 if its outcome is not known in time.

-dry-run connects to nothing and needs no token. The exit code is 1 if no worker could send the event. It uses
NATS_SUBJECT, EVENT_MAX_BYTES, SLACK_CHANNEL, SLACK_ROUTES, SLACK_MARKUP and the limits: give it those of the
workers. It ignores used slots, mutes and duplicates.

Examples:
   notifier publish errors "disk full"
   notifier publish errors -wait "disk full"
   notifier publish errors -header "Notifier-Source: nightly-backup" "disk full"
   notifier publish deploys '{"text":"v1.2.3 is out","cost":2}'
   notifier publish deploys -dry-run @deploy.json
   journalctl -f -u api | notifier publish api -header "Content-Type: text/plain" -`,
		DisableSliceFlagSeparator: true, // a header has commas
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "publish it `N` times"},
			&cli.StringFlag{
				Name: "id", Usage: "give the event this `ID`: an id that was sent before is not sent again",
			},
			&cli.StringSliceFlag{Name: "header", Usage: "set a `HEADER`, \"Name: value\"; may be repeated"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON, one object per event"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the event is sent, dropped or dead"},
			&cli.DurationFlag{
				Name: "timeout", Value: 30 * time.Second, Usage: "with -wait: wait for `DURATION` at most",
			},
			&cli.BoolFlag{Name: "dry-run", Usage: "show what would be posted; publish nothing"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			p, err := parsePublication(cmd)
			if err != nil {
				return err
			}
			if cmd.Bool("dry-run") {
				return dryRun(ctx, p, cmd)
			}
			return publish(ctx, p, cmd)
		},
	}
}

// publication holds the events of a command line. It does not change after parsing.
type publication struct {
	category string
	header   nats.Header // of each event
	lines    bool        // each line of standard input is a payload
	data     []byte      // the payload of each event, unless lines is set
	count    int
}

func parsePublication(cmd *cli.Command) (publication, error) {
	arguments := cmd.Args().Slice()
	p := publication{category: cmd.Args().First(), lines: cmd.Args().Get(1) == "-", count: cmd.Int("n")}
	many := p.lines || p.count > 1
	wait := cmd.Bool("wait")
	switch {
	case len(arguments) == 0:
		return p, cmdline.Usage(cmd, "missing CATEGORY")
	case len(arguments) > 2 && slices.Contains(arguments[1:], "-"):
		return p, cmdline.Usage(cmd, "both PAYLOAD and - (standard input), expected one of them")
	case len(arguments) > 2:
		return p, cmdline.Usagef(cmd, "unexpected argument %q; put a PAYLOAD of several words in quotes",
			arguments[2])
	case p.count < 1:
		return p, cmdline.Usagef(cmd, "-n %d, expected 1 or more", p.count)
	case p.lines && cmd.IsSet("n"):
		return p, cmdline.Usage(cmd, "-n cannot be used with -: each line is one event")
	case cmd.IsSet("id") && many:
		return p, cmdline.Usage(cmd, "-id names one event: it cannot be used with - or -n")
	case cmd.IsSet("id") && cmd.String("id") == "":
		return p, cmdline.Usage(cmd, "-id is empty, expected an id such as deploy-1234")
	case cmd.Bool("dry-run") && (wait || cmd.IsSet("n")):
		return p, cmdline.Usage(cmd, "-dry-run publishes nothing: it cannot be used with -wait or -n")
	case cmd.IsSet("timeout") && !wait:
		return p, cmdline.Usage(cmd, "-timeout requires -wait")
	case cmd.Duration("timeout") <= 0:
		return p, cmdline.Usagef(cmd, "-timeout %s, expected a duration such as 30s", cmd.Duration("timeout"))
	case wait && p.count > maxAwaited:
		return p, cmdline.Usagef(cmd, "-n %d, expected at most %d with -wait", p.count, maxAwaited)
	}
	var err error
	if p.header, err = parseHeader(cmd); err != nil || p.lines {
		return p, err
	}
	p.data = []byte("test notification")
	if len(arguments) == 2 {
		p.data, err = readPayload(arguments[1])
	}
	return p, err
}

// readPayload returns the content of FILE for an argument @FILE, and any other argument as it is.
func readPayload(argument string) ([]byte, error) {
	name, isFile := strings.CutPrefix(argument, "@")
	if !isFile || strings.HasPrefix(name, "@") {
		return []byte(name), nil
	}
	var data []byte
	file, err := os.Open(name)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(file, maxPayload+1))
		_ = file.Close() // nothing was written
	}
	if err == nil && len(data) > maxPayload {
		err = fmt.Errorf("%s has more than %d bytes, no server accepts them", name, maxPayload)
	}
	if err != nil {
		text := fmt.Sprintf("%v; a PAYLOAD that begins with @ is written with @@", err)
		return nil, &cmdline.UsageError{Text: text}
	}
	return data, nil
}

// parseHeader returns the headers of -header and -id.
func parseHeader(cmd *cli.Command) (nats.Header, error) {
	header := nats.Header{}
	for _, line := range cmd.StringSlice("header") {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		lower := strings.ToLower(name)
		reserved := strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "notifier-")
		switch {
		case !found || !outcome.PublishableHeader(name) || strings.ContainsFunc(value, unicode.IsControl):
			return nil, cmdline.Usagef(cmd, `-header %q, expected a line such as "Content-Type: text/plain"`,
				line)
		case reserved && !strings.EqualFold(name, outcome.HeaderSource):
			return nil, cmdline.Usagef(cmd,
				"-header %s is reserved for NATS and notifier; -id sets the id of the event", name)
		}
		header[name] = append(header[name], value)
	}
	if cmd.IsSet("id") {
		header.Set(outcome.HeaderMsgID, cmd.String("id"))
	}
	return header, nil
}

func (p publication) subject(pattern event.Pattern) (string, error) {
	if err := repeatsPrefix(pattern, p.category); err != nil {
		return "", err
	}
	subject, err := pattern.Subject(p.category)
	if err != nil {
		return "", &cmdline.UsageError{Text: err.Error()}
	}
	return subject, nil
}

// payload is the payload of one event, or the error that ends the input.
type payload struct {
	data []byte
	line int // of standard input; zero for other payloads
	err  error
}

// at adds the line of the payload to an error.
func (p payload) at(err error) error {
	if p.line == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", p.line, err)
}

// payloads sends the payloads in order and then closes the channel. After ctx ends, it may leave a goroutine
// behind, because reading from a terminal cannot be cancelled.
func (p publication) payloads(ctx context.Context, in io.Reader) <-chan payload {
	all := readLines(in)
	if !p.lines {
		all = repeat(payload{data: p.data}, p.count)
	}
	payloads := make(chan payload)
	go func() {
		defer close(payloads)
		for next := range all {
			select {
			case payloads <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	return payloads
}

func repeat(p payload, n int) iter.Seq[payload] {
	return func(yield func(payload) bool) {
		for range n {
			if !yield(p) {
				return
			}
		}
	}
}

// readLines returns the lines without their ends, Unix or Windows, and skips empty ones.
func readLines(in io.Reader) iter.Seq[payload] {
	return func(yield func(payload) bool) {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxPayload)
		line := 1
		for ; scanner.Scan(); line++ {
			if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
				continue
			}
			if !yield(payload{data: bytes.Clone(scanner.Bytes()), line: line}) {
				return
			}
		}
		err := scanner.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes", maxPayload)
		}
		if err != nil {
			yield(payload{line: line, err: err})
		}
	}
}

// publish publishes the events and, with -wait, shows their outcomes.
func publish(ctx context.Context, p publication, cmd *cli.Command) error {
	loaded, err := settings.Load(settings.GroupNATS)
	if err != nil {
		return err
	}
	s := loaded.NATS
	subject, err := p.subject(s.Pattern)
	if err != nil {
		return err
	}
	w := publisher{
		request: p, pattern: s.Pattern, subject: subject,
		out: cmd.Root().Writer, json: cmd.Bool("json"), wait: cmd.Bool("wait"),
	}
	if !p.lines {
		if _, _, err := w.message(p.data); err != nil {
			return err // before anything is connected
		}
	}
	watch := denial.NewWatch()
	ctx, end := watch.Context(ctx)
	defer end()
	connection, err := connectPublisher(s, watch)
	if err != nil {
		return err
	}
	defer connection.Close()
	var outcomes outcomeSource
	if w.wait {
		if outcomes, err = openOutcomes(ctx, connection, s); err != nil {
			return err
		}
	}
	w.js, err = jetstream.New(connection, jetstream.WithPublishAsyncTimeout(settings.NATSTimeout))
	if err != nil {
		return err
	}
	err = w.run(ctx, p.payloads(ctx, cmd.Root().Reader))
	if err := errors.Join(w.summary(), err); err != nil || !w.wait {
		return err
	}
	return showOutcomes(ctx, outcomes, w.awaited, cmd)
}

// connectPublisher connects with an inbox prefix that the user may subscribe to: the prefix of publishers, of
// operators or of any client. Later denials go to the watch.
func connectPublisher(s settings.NATS, watch *denial.Watch) (*nats.Conn, error) {
	const name = "notifier publish"
	ignore := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	for _, options := range [][]nats.Option{
		s.PublisherOptions(name, settings.PublisherInbox),
		s.OperatorOptions(name),
		s.PublisherOptions(name, "_INBOX"),
	} {
		connection, err := connectNATS(s, append(options, ignore))
		if err != nil {
			return nil, err
		}
		_, err = connection.SubscribeSync(connection.NewInbox())
		if err == nil {
			err = connection.FlushTimeout(settings.NATSTimeout)
		}
		switch {
		case err != nil:
			connection.Close()
			return nil, fmt.Errorf("NATS: %w", err)
		case errors.Is(connection.LastError(), nats.ErrPermissionViolation):
			connection.Close()
			continue
		}
		connection.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { watch.Denied(err) })
		return connection, nil
	}
	return nil, fmt.Errorf("NATS: no permission to receive acknowledgements; "+
		"allow this user to subscribe to %s.> (docs/security.md)", settings.PublisherInbox)
}

// publisher publishes the events of one command in their order, without waiting for each acknowledgement.
type publisher struct {
	request    publication
	js         jetstream.JetStream
	pattern    event.Pattern
	subject    string
	out        io.Writer
	json, wait bool

	inFlight []flight // the oldest first
	stored   int      // without duplicates
	last     publishedEvent
	awaited  []publishedEvent // with -wait
}

// flight is an event that is not acknowledged yet.
type flight struct {
	payload payload
	id      string
	ack     jetstream.PubAckFuture
}

// publishedEvent is the -json output for one event.
type publishedEvent struct {
	EventID   string `json:"event_id"`
	Category  string `json:"category"`
	Subject   string `json:"subject"`
	Stream    string `json:"stream"`
	StreamSeq uint64 `json:"stream_seq"`
	Duplicate bool   `json:"duplicate,omitempty"` // StreamSeq is an earlier event with this id
}

// run publishes the payloads until they end, one is rejected, the stream refuses one, or ctx ends. Then it
// waits for the outstanding acknowledgements. The error is about the first event that was not stored.
func (w *publisher) run(ctx context.Context, payloads <-chan payload) error {
	var refused, stopped error
	afterRefused := 0 // events that were stored although the stream refused one before them
	var giveUp <-chan time.Time
	done := ctx.Done()
	for payloads != nil || len(w.inFlight) > 0 {
		var acknowledged <-chan *jetstream.PubAck
		var failed <-chan error
		if len(w.inFlight) > 0 {
			acknowledged, failed = w.inFlight[0].ack.Ok(), w.inFlight[0].ack.Err()
		}
		source := payloads
		if len(w.inFlight) == maxInFlight {
			source = nil
		}
		select {
		case next, more := <-source:
			if more {
				stopped = w.send(next)
			}
			if !more || stopped != nil {
				payloads = nil
			}
		case ack := <-acknowledged:
			if refused != nil {
				afterRefused++
			}
			if err := w.keep(w.land(), ack); err != nil {
				return err
			}
		case err := <-failed:
			payloads = nil
			oldest := w.land()
			if refused == nil {
				refused = oldest.payload.at(w.explain(err))
			}
		case <-done:
			if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
				return fmt.Errorf("%w; docs/security.md has the permissions of a publisher, "+
					"and under compose \"docker compose run --rm cli\" has them", cause)
			}
			payloads, done = nil, nil
			stopped = errors.New("interrupted")
			giveUp = time.After(ackGrace)
		case <-giveUp:
			return fmt.Errorf("interrupted; whether %d more were stored is unknown", len(w.inFlight))
		}
	}
	switch {
	case afterRefused > 0:
		return fmt.Errorf("%w; %d after it were stored", refused, afterRefused)
	case refused != nil:
		return refused
	}
	return stopped
}

// send publishes one event.
func (w *publisher) send(next payload) error {
	if next.err != nil {
		return next.at(next.err)
	}
	if w.wait && len(w.awaited)+len(w.inFlight) == maxAwaited {
		return next.at(fmt.Errorf("-wait takes at most %d events", maxAwaited))
	}
	message, id, err := w.message(next.data)
	if err != nil {
		return next.at(err)
	}
	// A retry would put this event behind the next ones.
	ack, err := w.js.PublishMsgAsync(message, jetstream.WithRetryAttempts(0))
	if err != nil {
		return next.at(w.explain(err))
	}
	w.inFlight = append(w.inFlight, flight{next, id, ack})
	return nil
}

// message makes the message of an event and returns its id. It rejects a payload that no worker would accept,
// while the author can still correct it. Sizes, channels and costs depend on the settings of the workers.
func (w *publisher) message(data []byte) (message *nats.Msg, id string, err error) {
	message = &nats.Msg{Subject: w.subject, Header: maps.Clone(w.request.header), Data: data}
	newID := strings.ToLower(rand.Text()[:16])
	decoded, rejection := event.Decode(event.Message{
		Subject: w.subject, Header: message.Header, Data: data, FallbackID: newID, Published: time.Now(),
	}, event.Rules{
		Pattern: w.pattern, MaxBytes: maxPayload, ChannelAllowed: func(string) bool { return true },
	})
	if rejection != nil {
		return nil, "", &cmdline.UsageError{Text: rejection.Detail}
	}
	switch {
	case decoded.ID == newID:
		message.Header.Set(outcome.HeaderMsgID, newID)
	case w.request.count > 1:
		text := "the payload has the id %q, so all events but one would be duplicates; remove the id, or -n"
		return nil, "", &cmdline.UsageError{Text: fmt.Sprintf(text, decoded.ID)}
	}
	return message, decoded.ID, nil
}

// land removes the oldest event from those in flight.
func (w *publisher) land() flight {
	oldest := w.inFlight[0]
	w.inFlight = slices.Delete(w.inFlight, 0, 1)
	return oldest
}

// keep counts a stored event and shows it with -json, unless its outcome is to be shown.
func (w *publisher) keep(f flight, ack *jetstream.PubAck) error {
	w.last = publishedEvent{
		EventID: f.id, Category: w.request.category, Subject: w.subject, Stream: ack.Stream,
		StreamSeq: ack.Sequence, Duplicate: ack.Duplicate,
	}
	if !ack.Duplicate {
		w.stored++
	}
	switch {
	case w.wait:
		w.awaited = append(w.awaited, w.last)
	case w.json:
		return term.NewJSON(w.out).Encode(w.last)
	}
	return nil
}

// explain adds advice to the error of an event that was not stored.
func (w *publisher) explain(err error) error {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream stores %s, or the stream has no leader now; "+
			"start \"notifier serve\", which creates the stream, or publish again", w.subject)
	case errors.As(err, &refused) && strings.HasPrefix(refused.Description, "maximum "):
		return fmt.Errorf("the stream of %s is full (%s); publish again when workers have read it, "+
			"or raise its limits: \"notifier check\" shows them", w.subject, refused.Description)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("payload with headers has more than the %d bytes that the server accepts",
			w.js.Conn().MaxPayload())
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout) || errors.Is(err, nats.ErrDisconnected):
		return fmt.Errorf("whether the event was stored is unknown: %w", err)
	}
	return err
}

// summary writes how many events were published, and the id of a single one.
func (w *publisher) summary() error {
	if w.json {
		return nil
	}
	text := fmt.Sprintf("%d published to %s\n", w.stored, w.subject)
	single := w.last.Stream != "" && !w.request.lines && w.request.count == 1
	switch {
	case single && w.last.Duplicate:
		text = fmt.Sprintf("%s: duplicate, id %q was published before: event %d of stream %s\n",
			w.subject, w.last.EventID, w.last.StreamSeq, w.last.Stream) + text
	case single:
		text = fmt.Sprintf("%s: event %d of stream %s, id %s\n",
			w.subject, w.last.StreamSeq, w.last.Stream, w.last.EventID) + text
	}
	_, err := io.WriteString(w.out, term.Lines(text)) // any reader of the events can forge an acknowledgement
	return err
}
