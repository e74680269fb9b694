package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
)

// longestPayload bounds one line or value of standard input, and a file: NATS' own upper bound of a payload.
const longestPayload = settings.LargestEvent

func publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish one event, or one per line of standard input",
		ArgsUsage: "CATEGORY [TEXT | @FILE | -]",
		Description: `The event goes to NATS_SUBJECT, with CATEGORY in place of the wildcard. TEXT is sent as plain text, whatever it
looks like; with -json it is a JSON payload (text, blocks, id, channel, thread_ts, cost, time).
Without TEXT the text is "test notification". @FILE is the content of a file without its last line end; a TEXT
that begins with @ is written with @@. With - each line of standard input is one event, and with -json - each
JSON object, on one line or on many. A payload that no worker could read is rejected here.

It shows the id and the place in the stream of what was published. An event without an id gets one, for
"notifier why". -wait also shows the outcome of the event; the exit code is 3 if it was not sent, and 1 if the outcome
is not known in time. It needs permission to read the outcomes that workers record.

Examples:
   notifier publish errors "disk full"
   notifier publish errors -wait "disk full"
   notifier publish deploys -json '{"text":"v1.2.3 is out","cost":2}'
   notifier publish deploys -json @deploy.json
   notifier publish errors -n 1000 -rate 200 "error storm"
   journalctl -f -u api | notifier publish api -`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "publish it `N` times"},
			&cli.FloatFlag{Name: "rate", Usage: "publish at most `R` events per second; by default as fast as possible"},
			&cli.StringFlag{Name: "id", Usage: "give the event this `ID`: an id that was sent before is not sent again"},
			&cli.BoolFlag{Name: "json", Usage: "TEXT, or what is in FILE or standard input, is JSON"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the event is sent, dropped or dead, and show that"},
			&cli.DurationFlag{Name: "timeout", Value: defaultWait, Usage: "with -wait: wait for `DURATION` at most"},
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
			if err := request.readFile(); err != nil {
				return err
			}
			return publish(ctx, s, request, cmd.Root().Reader, cmd.Root().Writer, cmd.Root().ErrWriter)
		},
	}
}

// publishRequest is what a user wants published.
type publishRequest struct {
	category string
	text     string
	hasText  bool   // it is an argument
	file     string // that holds the text; empty: none
	input    bool   // the texts are in standard input
	json     bool
	id       string
	count    int
	rate     float64       // events per second; 0: unbounded
	wait     time.Duration // how long to wait for what becomes of the event; 0: not at all
	inbox    string        // prefix of the subjects at which acknowledgements arrive
}

// single reports whether exactly one event is to be published.
func (r publishRequest) single() bool { return !r.input && r.count == 1 }

func parsePublish(cmd *cli.Command) (publishRequest, error) {
	request := publishRequest{
		category: cmd.Args().First(), text: "test notification",
		json: cmd.Bool("json"), id: cmd.String("id"), count: cmd.Int("n"), rate: cmd.Float("rate"),
		inbox: cmd.String("inbox-prefix"),
	}
	switch {
	case cmd.NArg() == 0:
		return request, cmdline.Usage(cmd, "missing CATEGORY")
	case cmd.NArg() > 2:
		return request, cmdline.Usage(cmd, fmt.Sprintf("unexpected argument %q; put a TEXT of several words in quotes", cmd.Args().Get(2)))
	case cmd.NArg() == 2:
		request.parseText(cmd.Args().Get(1))
	case request.json:
		return request, cmdline.Usage(cmd, "missing TEXT: -json needs a payload")
	}
	if cmd.Bool("wait") {
		request.wait = cmd.Duration("timeout")
	}
	return request, request.checkFlags(cmd)
}

// parseText reads the argument: "-", "@FILE", "@@text" for a text that begins with "@", or the text.
func (r *publishRequest) parseText(text string) {
	name, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-":
		r.input = true
	case strings.HasPrefix(name, "@"):
		r.text = name
	case isFile:
		r.file = name
	default:
		r.text, r.hasText = text, true
	}
}

// checkFlags rejects values and combinations that make no sense.
func (r publishRequest) checkFlags(cmd *cli.Command) error {
	switch waits := cmd.Bool("wait"); {
	case cmd.Args().Get(1) == "@":
		return cmdline.Usage(cmd, "missing FILE behind @")
	case r.count < 1:
		return cmdline.Usage(cmd, fmt.Sprintf("-n %d, expected 1 or more", r.count))
	case math.IsNaN(r.rate) || r.rate < 0:
		return cmdline.Usage(cmd, fmt.Sprintf("-rate %g, expected 0 or more", r.rate))
	case r.input && r.count > 1:
		return cmdline.Usage(cmd, "-n cannot be used with -: each line is one event")
	case r.id != "" && !r.single():
		return cmdline.Usage(cmd, "-id names one event: it cannot be used with - or -n")
	case waits && !r.single():
		return cmdline.Usage(cmd, "-wait waits for one event: it cannot be used with - or -n")
	case waits && (r.wait < shortestWait || r.wait > longestWait):
		return cmdline.Usage(cmd, fmt.Sprintf("-timeout %s, expected %s to %s", r.wait, shortestWait, longestWait))
	case !waits && cmd.IsSet("timeout"):
		return cmdline.Usage(cmd, "-timeout is for -wait, which is not set")
	case !settings.IsInboxPrefix(r.inbox):
		return cmdline.Usage(cmd, fmt.Sprintf("-inbox-prefix %q, expected a subject without wildcards such as %s", r.inbox, settings.PublisherInbox))
	}
	return nil
}

// readFile reads the text from its file, if it is in one.
func (r *publishRequest) readFile() error {
	if r.file == "" {
		return nil
	}
	data, err := readPayload(r.file)
	if err != nil {
		return &cmdline.UsageError{Text: fmt.Sprintf("%v; a TEXT that begins with @ is written with @@", err)}
	}
	r.text = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	return nil
}

// readPayload reads a file of at most longestPayload bytes. The error names it.
func readPayload(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	return readAll(file, name)
}
