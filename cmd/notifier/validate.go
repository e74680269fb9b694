package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/slackout"
	"notifier/internal/term"
)

// anyCategory is the category of a payload that is validated for none.
const anyCategory = "any"

func validateCommand() *cli.Command {
	return &cli.Command{
		Name:      "validate",
		Usage:     "read a payload as a worker would, and show what would be posted; sends nothing",
		ArgsUsage: "[FILE | -]",
		Description: `Reads a file, or standard input, as the payload of one event, and shows what would be posted and where, or why it never
could be: the reason and the detail of its dead letter. The exit code is 1 if it never could be. It connects to nothing.
Whether a limit, a mute or an id that was sent before stops the event is not looked at:
"notifier status CATEGORY" is for that.

What counts are NATS_SUBJECT, EVENT_MAX_BYTES, SLACK_CHANNEL, SLACK_ROUTES, SLACK_MARKUP, SLACK_LINK_HOSTS and the
limits, as they are set here: give it those of the workers. No token is needed. -category is needed for the route and
the limits of that category. -header sets a header of the message, such as those of a CloudEvent in binary mode.

Examples:
   notifier validate -category deploys deploy.json
   echo '{"text":"disk full","cost":3}' | notifier validate
   notifier validate -header "Content-Type: text/plain" message.txt`,
		DisableSliceFlagSeparator: true, // a header has commas
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Value: anyCategory, Usage: "the `CATEGORY` that it would be published to"},
			&cli.StringSliceFlag{Name: "header", Usage: "a `HEADER` of the message, \"Name: value\"; may be repeated"},
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			v, err := parseValidate(cmd)
			if err != nil {
				return err
			}
			rules, slack, err := settings.LoadEvents()
			if err != nil {
				return err
			}
			if v.message.Subject, err = subjectOf(rules.Pattern, v.category); err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			if v.message.Data, err = v.read(ctx, cmd.Root().Reader); err != nil {
				return err
			}
			notes := payloadNotes{out: cmd.Root().ErrWriter}
			notes.unread(v.message)
			if bytes.HasPrefix(v.message.Data, []byte("[")) {
				notes.asText(v.message.Data)
			}
			return v.run(rules, slack, cmd.Root().Writer)
		},
	}
}

// validation is one run of the command.
type validation struct {
	file     string // empty: standard input
	category string
	json     bool
	message  event.Message
}

// fallbackID stands for the id that the stream gives an event that has none.
const fallbackID = "-"

func parseValidate(cmd *cli.Command) (validation, error) {
	v := validation{file: cmd.Args().First(), category: cmd.String("category"), json: cmd.Bool("json")}
	if cmd.NArg() > 1 {
		return v, cmdline.Usage(cmd, fmt.Sprintf("unexpected argument %q", cmd.Args().Get(1)))
	}
	if v.file == "-" {
		v.file = ""
	}
	v.message = event.Message{Header: map[string][]string{}, FallbackID: fallbackID, Published: time.Now().UTC()}
	for _, header := range cmd.StringSlice("header") {
		name, value, found := strings.Cut(header, ":")
		name = strings.TrimSpace(name)
		if !found || name == "" || strings.ContainsAny(header, "\r\n") {
			return v, cmdline.Usage(cmd, fmt.Sprintf("-header %q, expected a line such as \"Content-Type: text/plain\"", header))
		}
		v.message.Header[name] = append(v.message.Header[name], strings.TrimSpace(value))
	}
	return v, nil
}

// read reads the payload. A read from a terminal cannot be interrupted, so it has a goroutine of its own.
func (v validation) read(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		if v.file != "" {
			r.data, r.err = readPayload(v.file)
		} else {
			r.data, r.err = readAll(in, "standard input")
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, errors.New("interrupted")
	}
}

// validated is what -json writes.
type validated struct {
	Valid    bool   `json:"valid"`
	Outcome  string `json:"outcome,omitempty"` // not valid: what would become of it
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Category string `json:"category"`
	Subject  string `json:"subject"`
	Bytes    int    `json:"bytes"`
	EventID  string `json:"event_id,omitempty"` // empty: made when it is stored
	Source   string `json:"source,omitempty"`
	Channel  string `json:"channel,omitempty"` // empty: no setting here names it
	ThreadTS string `json:"thread_ts,omitempty"`
	Cost     int    `json:"cost,omitempty"`
	Time     string `json:"time,omitempty"` // as the payload has it
	Text     int    `json:"text_characters"`
	Cut      bool   `json:"text_cut,omitempty"`
	Blocks   int    `json:"blocks"`

	text string // as it would be posted
}

func (v validation) run(rules event.Rules, slack slackout.Config, out io.Writer) error {
	decoded, rejection := event.Decode(v.message, rules)
	result := validated{
		Valid: rejection == nil, Category: v.category, Subject: v.message.Subject, Bytes: len(v.message.Data),
		Source: decoded.Source,
	}
	if decoded.ID != fallbackID {
		result.EventID = decoded.ID
	}
	if rejection == nil {
		preview, err := slack.Preview(decoded)
		if err != nil {
			return err
		}
		result.describe(decoded, preview, v.message.Published)
	} else {
		result.Outcome, result.Reason, result.Detail = outcome.Dead, rejection.Reason, rejection.Detail
		if rejection.Reason == outcome.Reply {
			result.Outcome = outcome.Dropped
		}
	}
	if err := v.write(out, result); err != nil {
		return err
	}
	if rejection != nil {
		return fmt.Errorf("it could never be sent, it would be %s as %s: %s", result.Outcome, result.Reason, term.Printable(result.Detail))
	}
	return nil
}

// describe sets what would be posted.
func (r *validated) describe(e event.Event, preview slackout.Preview, published time.Time) {
	r.Channel, r.ThreadTS, r.Cost = preview.Channel, e.ThreadTS, e.Cost
	r.text, r.Text, r.Cut, r.Blocks = preview.Text, utf8.RuneCountInString(preview.Text), preview.Cut, preview.Blocks
	if !e.Time.Equal(published) {
		r.Time = e.Time.Format(time.RFC3339Nano)
	}
}

func (v validation) write(out io.Writer, r validated) error {
	if v.json {
		return term.NewJSON(out).Encode(r)
	}
	if !r.Valid {
		return nil // the error says it
	}
	var lines bytes.Buffer
	add := func(name, value string) { fmt.Fprintf(&lines, "  %-8s %s\n", name, term.Cell(value)) }
	channel := r.Channel
	if channel == "" {
		channel = "the webhook's channel, or the workers' SLACK_CHANNEL, which is not set here"
	}
	fmt.Fprintf(&lines, "would be posted to %s\n", term.Cell(channel))
	if r.ThreadTS != "" {
		add("thread", r.ThreadTS)
	}
	if r.text != "" {
		note := ""
		if r.Cut {
			note = ", cut because Slack keeps no more"
		}
		add("text", fmt.Sprintf("%s%s: %s", term.Count(r.Text, "character"), note, strings.TrimSpace(strings.ReplaceAll(r.text, "\n", " "))))
	}
	if r.Blocks > 0 {
		add("blocks", fmt.Sprint(r.Blocks))
	}
	id := r.EventID
	if id == "" {
		id = "none; it gets one when the stream stores it"
	}
	add("id", id)
	add("cost", term.Count(r.Cost, "slot"))
	if r.Source != "" {
		add("source", r.Source)
	}
	if r.Time != "" {
		add("time", r.Time)
	}
	_, err := lines.WriteTo(out)
	return err
}
