package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/internal/slackout"
	"notifier/internal/term"
)

// dryRun shows the messages that a worker with the settings of this process would post. It connects to
// nothing.
func dryRun(ctx context.Context, p publication, cmd *cli.Command) error {
	s, err := settings.Load(settings.GroupLimits,
		"NATS_SUBJECT", "EVENT_MAX_BYTES", "SLACK_CHANNEL", "SLACK_ROUTES", "SLACK_MARKUP")
	if err != nil {
		return err
	}
	subject, err := p.subject(s.Events.Pattern)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	payloads := p.payloads(ctx, cmd.Root().Reader)
	unsendable := false
	for {
		var next payload
		more := false
		select {
		case next, more = <-payloads:
		case <-ctx.Done():
			return errors.New("interrupted")
		}
		switch {
		case !more && unsendable:
			return cli.Exit("", cmdline.ExitFailed)
		case !more:
			return nil
		case next.err != nil:
			return next.at(next.err)
		}
		message := event.Message{
			Subject: subject, Header: p.header, Data: next.data, FallbackID: noID, Published: time.Now(),
		}
		shown, err := preview(message, s.Events, s.Slack)
		if err != nil {
			return next.at(err)
		}
		shown.Category = p.category
		if err := shown.show(cmd, next); err != nil {
			return err
		}
		unsendable = unsendable || !shown.Valid
	}
}

// noID stands for the id that an event without one gets when it is published.
const noID = "-"

// dryRunEvent is the -json output for one event of a dry run.
type dryRunEvent struct {
	Valid    bool   `json:"valid"`
	Outcome  string `json:"outcome,omitempty"` // of an event that is not valid
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Category string `json:"category"`
	Subject  string `json:"subject"`
	EventID  string `json:"event_id,omitempty"` // empty if it gets one when it is published
	Source   string `json:"source,omitempty"`
	Channel  string `json:"channel,omitempty"` // empty if no setting here names it
	ThreadTS string `json:"thread_ts,omitempty"`
	Cost     int    `json:"cost,omitempty"`
	Time     string `json:"time,omitempty"` // as the payload has it

	// The message as Slack would get it.
	Text        string          `json:"text,omitempty"`
	Blocks      json.RawMessage `json:"blocks,omitempty"`
	Attachments json.RawMessage `json:"attachments,omitempty"`
}

// preview reads an event as a worker would.
func preview(m event.Message, rules event.Rules, slack slackout.Config) (dryRunEvent, error) {
	decoded, rejection := event.Decode(m, rules)
	shown := dryRunEvent{Valid: rejection == nil, Subject: m.Subject, Source: decoded.Source}
	if decoded.ID != noID {
		shown.EventID = decoded.ID
	}
	if rejection != nil {
		shown.Outcome, shown.Reason, shown.Detail = outcome.Dead, rejection.Reason, rejection.Detail
		if rejection.Reason == outcome.Reply {
			shown.Outcome = outcome.Dropped
		}
		return shown, nil
	}
	posted, err := slack.Preview(decoded)
	if err != nil {
		return shown, err
	}
	shown.Channel, shown.ThreadTS, shown.Cost = posted.Channel, decoded.ThreadTS, decoded.Cost
	shown.Text, shown.Blocks, shown.Attachments = posted.Text, posted.Blocks, posted.Attachments
	if !decoded.Time.Equal(m.Published) {
		shown.Time = decoded.Time.Format(time.RFC3339Nano)
	}
	return shown, nil
}

// show writes the message to standard output, or the reason why it cannot be sent to standard error.
func (d dryRunEvent) show(cmd *cli.Command, from payload) error {
	root := cmd.Root()
	if cmd.Bool("json") {
		if err := term.NewJSON(root.Writer).Encode(d); err != nil {
			return err
		}
	}
	switch {
	case !d.Valid:
		cmdline.Warn(cmd, from.at(fmt.Errorf("this event would end as %s (%s): %s",
			d.Outcome, d.Reason, d.Detail)))
		return nil
	case cmd.Bool("json"):
		return nil
	}
	return d.write(root.Writer, from.line)
}

func (d dryRunEvent) write(out io.Writer, line int) error {
	channel := d.Channel
	if channel == "" {
		channel = "the webhook's channel, or the workers' SLACK_CHANNEL, which is not set here"
	}
	head := "would be posted to " + term.Cell(channel)
	if line > 0 {
		head = fmt.Sprintf("line %d: %s", line, head)
	}
	if _, err := fmt.Fprintln(out, head); err != nil {
		return err
	}
	id := d.EventID
	if id == "" {
		id = "none; it gets one when it is published"
	}
	table := term.NewTable(out)
	for _, row := range [][2]string{
		{"thread", d.ThreadTS},
		{"text", strings.TrimSpace(strings.ReplaceAll(d.Text, "\n", " "))},
		{"blocks", string(d.Blocks)},
		{"attachments", string(d.Attachments)},
		{"id", id},
		{"cost", strconv.Itoa(d.Cost)},
		{"source", d.Source},
		{"time", d.Time},
	} {
		if row[1] != "" {
			table.Row("  "+row[0], row[1])
		}
	}
	return table.Flush()
}
