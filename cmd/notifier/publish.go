package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/settings"
)

func publishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "publish one event, or one per line of standard input",
		ArgsUsage: "CATEGORY [PAYLOAD | @FILE | -]",
		Description: `Publishes the payload as it is: text, a JSON object or a CloudEvent. Without PAYLOAD it
is the text "test notification". @FILE publishes a file as one payload; a PAYLOAD that begins with @ is
written with @@. With - each line of standard input is one payload; empty lines are skipped. A payload that
no worker could read is rejected. What begins with { is read as JSON (text, blocks, id, channel, thread_ts,
cost, time); -header "Content-Type: text/plain" makes it text.

CATEGORY replaces the wildcard of NATS_SUBJECT. An event without an id gets one, for "notifier why". -wait
also shows the outcome; the exit code is 3 if the event was not sent, and 1 if the outcome is not known in
time. It needs permission to read the outcomes that workers record.

-dry-run reads the payload as a worker would and shows what would be posted and where, or why it never could
be; then the exit code is 1. It connects to nothing and needs no token. It uses NATS_SUBJECT,
EVENT_MAX_BYTES, SLACK_CHANNEL, SLACK_ROUTES, SLACK_MARKUP and the limits: give it those
of the workers. It ignores used slots, mutes and duplicates.

Examples:
   notifier publish errors "disk full"
   notifier publish errors -wait "disk full"
   notifier publish deploys '{"text":"v1.2.3 is out","cost":2}'
   notifier publish deploys -dry-run @deploy.json
   notifier publish errors -n 1000 -rate 200 "error storm"
   journalctl -f -u api | notifier publish api -header "Content-Type: text/plain" -`,
		DisableSliceFlagSeparator: true, // a header has commas
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "publish it `N` times"},
			&cli.FloatFlag{
				Name: "rate", Usage: "publish at most `R` events per second; by default as fast as possible",
			},
			&cli.StringFlag{
				Name: "id", Usage: "give the event this `ID`: an id that was sent before is not sent again",
			},
			&cli.StringFlag{Name: "source", Usage: "say that `NAME` caused the event; a CloudEvent says it itself"},
			&cli.StringSliceFlag{Name: "header", Usage: "set a `HEADER`, \"Name: value\"; may be repeated"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON, one object per event"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the event is sent, dropped or dead"},
			&cli.DurationFlag{
				Name: "timeout", Value: defaultWait, Usage: "with -wait: wait for `DURATION` at most",
			},
			&cli.BoolFlag{Name: "dry-run", Usage: "show what would be posted; publish nothing"},
			&cli.StringFlag{
				Name: "inbox-prefix", Value: settings.PublisherInbox,
				Usage: "receive acknowledgements below `SUBJECT`",
			},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			request, err := parsePublish(cmd)
			if err != nil {
				return err
			}
			if cmd.Bool("dry-run") {
				return dryRun(ctx, request, cmd.Root())
			}
			return publish(ctx, request, cmd.Root())
		},
	}
}

// publishRequest holds the arguments and flags of notifier publish.
type publishRequest struct {
	category string
	payload  string
	argument bool        // the payload is an argument
	file     string      // reads the payload from here if not empty
	input    bool        // the payloads are the lines of standard input
	header   nats.Header // of each event
	json     bool        // print JSON
	count    int
	rate     float64       // events per second; zero means no limit
	wait     time.Duration // bounds the wait for the outcome; zero means no wait
	inbox    string        // prefix of the subjects at which acknowledgements arrive
}

// single reports whether exactly one event is to be published.
func (r publishRequest) single() bool { return !r.input && r.count == 1 }

func parsePublish(cmd *cli.Command) (publishRequest, error) {
	request := publishRequest{
		category: cmd.Args().First(), payload: "test notification", json: cmd.Bool("json"),
		count: cmd.Int("n"), rate: cmd.Float("rate"), inbox: cmd.String("inbox-prefix"),
	}
	switch {
	case cmd.NArg() == 0:
		return request, cmdline.Usagef(cmd, "missing CATEGORY")
	case cmd.NArg() > 2:
		return request, cmdline.Usagef(cmd, "unexpected argument %q; put a PAYLOAD of several words in quotes",
			cmd.Args().Get(2))
	case cmd.NArg() == 2:
		request.parsePayload(cmd.Args().Get(1))
	}
	if cmd.Bool("wait") {
		request.wait = cmd.Duration("timeout")
	}
	if err := request.checkFlags(cmd); err != nil {
		return request, err
	}
	return request, request.parseHeaders(cmd)
}

// parsePayload reads the argument: "-", "@FILE", "@@text" for a text that begins with "@", or the payload.
func (r *publishRequest) parsePayload(argument string) {
	name, isFile := strings.CutPrefix(argument, "@")
	switch {
	case argument == "-":
		r.input = true
	case strings.HasPrefix(name, "@"):
		r.payload = name
	case isFile:
		r.file = name
	default:
		r.payload, r.argument = argument, true
	}
}

// checkFlags rejects values and combinations that make no sense.
func (r publishRequest) checkFlags(cmd *cli.Command) error {
	switch waits := cmd.Bool("wait"); {
	case cmd.Args().Get(1) == "@":
		return cmdline.Usagef(cmd, "missing FILE behind @")
	case r.count < 1:
		return cmdline.Usagef(cmd, "-n %d, expected 1 or more", r.count)
	case math.IsNaN(r.rate) || r.rate < 0:
		return cmdline.Usagef(cmd, "-rate %g, expected 0 or more", r.rate)
	case r.input && r.count > 1:
		return cmdline.Usagef(cmd, "-n cannot be used with -: each line is one event")
	case cmd.String("id") != "" && !r.single():
		return cmdline.Usagef(cmd, "-id names one event: it cannot be used with - or -n")
	case waits && !r.single():
		return cmdline.Usagef(cmd, "-wait waits for one event: it cannot be used with - or -n")
	case waits && (r.wait < minWait || r.wait > maxWait):
		return cmdline.Usagef(cmd, "-timeout %s, expected %s to %s", r.wait, minWait, maxWait)
	case !waits && cmd.IsSet("timeout"):
		return cmdline.Usagef(cmd, "-timeout requires -wait")
	case !settings.IsInboxPrefix(r.inbox):
		return cmdline.Usagef(cmd, "-inbox-prefix %q, expected a subject without wildcards such as %s",
			r.inbox, settings.PublisherInbox)
	}
	if cmd.Bool("dry-run") {
		for _, name := range []string{"wait", "n", "rate"} {
			if cmd.IsSet(name) {
				return cmdline.Usagef(cmd, "-dry-run publishes nothing: it cannot be used with -%s", name)
			}
		}
	}
	return nil
}

// parseHeaders sets the headers that -id, -source and -header name.
func (r *publishRequest) parseHeaders(cmd *cli.Command) error {
	r.header = nats.Header{}
	set := map[string]bool{} // in lower case: workers ignore case, and read only the first of several
	for _, line := range cmd.StringSlice("header") {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		lower := strings.ToLower(name)
		switch {
		case !found || !outcome.PublishableHeader(name) || strings.ContainsFunc(value, unicode.IsControl):
			return cmdline.Usagef(cmd, `-header %q, expected a line such as "Content-Type: text/plain"`, line)
		case lower == strings.ToLower(outcome.HeaderMsgID):
			return cmdline.Usagef(cmd, "-header %s is reserved: -id sets it", name)
		case lower == strings.ToLower(outcome.HeaderSource):
			return cmdline.Usagef(cmd, "-header %s is reserved: -source sets it", name)
		case strings.HasPrefix(lower, "nats-"):
			return cmdline.Usagef(cmd, "-header %s is reserved: NATS reads it as an instruction", name)
		case strings.HasPrefix(lower, strings.ToLower(outcome.HeaderPrefix)):
			return cmdline.Usagef(cmd, "-header %s is reserved: notifier sets it", name)
		case set[lower]:
			return cmdline.Usagef(cmd, "-header %s is set twice", name)
		}
		set[lower] = true
		r.header.Set(name, value)
	}
	if id := cmd.String("id"); id != "" {
		r.header.Set(outcome.HeaderMsgID, id)
	}
	if source := cmd.String("source"); cmd.IsSet("source") {
		if strings.TrimSpace(source) == "" || strings.ContainsFunc(source, unicode.IsControl) {
			return cmdline.Usagef(cmd, "-source %q, expected a name such as nightly-backup", source)
		}
		r.header.Set(outcome.HeaderSource, source)
	}
	return nil
}

// subject is the subject of the category. A category that is a whole subject is most likely a mistake.
func (r publishRequest) subject(pattern event.Pattern) (string, error) {
	if err := repeatsPrefix(pattern, r.category); err != nil {
		return "", err
	}
	subject, err := pattern.Subject(r.category)
	_, noCategory := pattern.Subject(r.payload)
	isInput := r.category == "-" || strings.HasPrefix(r.category, "@") // standard input, or a file
	switch {
	case r.argument && (isInput || err != nil && noCategory == nil && strings.ContainsAny(r.category, " \t\n")):
		text := fmt.Sprintf("%q is not a category; are CATEGORY and PAYLOAD swapped?", r.category)
		return "", &cmdline.UsageError{Text: text}
	case err != nil:
		return "", &cmdline.UsageError{Text: err.Error()}
	}
	return subject, nil
}

// categoryFlag returns the value of -category, or "" if unset. It ignores invalid settings, because the
// command later reports all of them together.
func categoryFlag(cmd *cli.Command) (string, error) {
	category := cmd.String("category")
	if category == "" && cmd.IsSet("category") {
		return "", cmdline.Usage(cmd, `-category "", expected a category such as errors`)
	}
	loaded, err := settings.Load("NATS_SUBJECT")
	if err != nil {
		return category, nil
	}
	return category, repeatsPrefix(loaded.NATS.Pattern, category)
}

// repeatsPrefix rejects a category, or a pattern of categories, that is named by its whole subject:
// notify.errors in place of errors.
func repeatsPrefix(pattern event.Pattern, category string) error {
	meant, found := pattern.Repeated(category)
	if !found {
		return nil
	}
	text := fmt.Sprintf(
		"category %q repeats the prefix of NATS_SUBJECT %q%s",
		category,
		pattern,
		cmdline.DidYouMean(meant),
	)
	return &cmdline.UsageError{Text: text}
}
