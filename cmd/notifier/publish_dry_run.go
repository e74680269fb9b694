package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// fallbackID is a placeholder for the id that publish would generate.
const fallbackID = "-"

// dryRun reads the payloads as a worker with the settings of this process would, and connects to nothing.
func dryRun(ctx context.Context, request publishRequest, root *cli.Command) error {
	s, err := settings.Load(
		settings.GroupLimits, "NATS_SUBJECT", "EVENT_MAX_BYTES", "SLACK_CHANNEL", "SLACK_ROUTES", "SLACK_MARKUP")
	if err != nil {
		return err
	}
	rules, slack := s.Events, s.Slack
	subject, err := request.subject(rules.Pattern)
	if err != nil {
		return err
	}
	if err := request.readFile(ctx); err != nil {
		return err
	}
	dead := false
	notes := payloadNotes{out: root.ErrWriter}
	for next := range request.payloads(ctx, root.Reader) {
		if next.err != nil {
			return interrupted(next.failed(next.err))
		}
		message := event.Message{
			Subject: subject, Header: request.header, Data: []byte(next.text), FallbackID: fallbackID,
			Published: time.Now().UTC(),
		}
		result, err := preview(message, rules, slack, &notes)
		if err != nil {
			return next.failed(err)
		}
		result.Category = request.category
		if request.json {
			err = term.NewJSON(root.Writer).Encode(result)
		} else if result.Valid {
			err = result.write(root.Writer, next.line)
		}
		if err != nil {
			return err
		}
		if !result.Valid {
			dead = true
			err := next.failed(result.unpostable(asText(message, rules)))
			_, _ = fmt.Fprintf(root.ErrWriter, "%s: %v\n", root.Name, err)
		}
	}
	if dead {
		return cli.Exit("", cmdline.ExitFailed)
	}
	return nil
}

// dryRunEvent is the -json output for one event of a dry run.
type dryRunEvent struct {
	Valid    bool   `json:"valid"`
	Outcome  string `json:"outcome,omitempty"` // of an event that is not valid
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Category string `json:"category"`
	Subject  string `json:"subject"`
	Bytes    int    `json:"bytes"`
	EventID  string `json:"event_id,omitempty"` // empty: it gets one when it is published
	Source   string `json:"source,omitempty"`
	Channel  string `json:"channel,omitempty"` // empty: no setting here names it
	ThreadTS string `json:"thread_ts,omitempty"`
	Cost     int    `json:"cost,omitempty"`
	Time     string `json:"time,omitempty"` // as the payload has it

	// The message as Slack would get it.
	Text        string          `json:"text,omitempty"`
	Length      int             `json:"text_characters"`
	Cut         bool            `json:"text_cut,omitempty"`
	Blocks      json.RawMessage `json:"blocks,omitempty"`
	Attachments json.RawMessage `json:"attachments,omitempty"`
}

// preview reads an event as a worker would.
func preview(
	m event.Message, rules event.Rules, slack slackout.Config, notes *payloadNotes,
) (dryRunEvent, error) {
	decoded, rejection := event.Decode(m, rules)
	notes.unread(m)
	notes.source(m, decoded)
	result := dryRunEvent{
		Valid: rejection == nil, Subject: m.Subject, Bytes: len(m.Data), Source: decoded.Source,
	}
	if decoded.ID != fallbackID {
		result.EventID = decoded.ID
	}
	if rejection != nil {
		result.Outcome, result.Reason, result.Detail = outcome.Dead, rejection.Reason, rejection.Detail
		if rejection.Reason == outcome.Reply {
			result.Outcome = outcome.Dropped
		}
		return result, nil
	}
	posted, err := slack.Preview(decoded)
	if err != nil {
		return result, err
	}
	result.Channel, result.ThreadTS, result.Cost = posted.Channel, decoded.ThreadTS, decoded.Cost
	result.Text, result.Length, result.Cut = posted.Text, utf8.RuneCountInString(posted.Text), posted.Cut
	result.Blocks, result.Attachments = posted.Blocks, posted.Attachments
	if !decoded.Time.Equal(m.Published) {
		result.Time = decoded.Time.Format(time.RFC3339Nano)
	}
	return result, nil
}

// unpostable returns an error with the reason that blocks the event, followed by advice.
func (r dryRunEvent) unpostable(advice string) error {
	detail := term.Printable(r.Detail) + advice
	return fmt.Errorf("it could never be sent, it would be %s as %s: %s", r.Outcome, r.Reason, detail)
}

// addJSON adds blocks or attachments in full, indented.
func addJSON(lines *bytes.Buffer, name string, list json.RawMessage) {
	var indented bytes.Buffer
	if json.Indent(&indented, list, "  ", "  ") == nil && len(list) > 0 {
		fmt.Fprintf(lines, "  %-8s %s\n", name, term.Lines(indented.String()))
	}
}

// write prints a preview of the post as text.
func (r dryRunEvent) write(out io.Writer, line int) error {
	var lines bytes.Buffer
	add := func(name, value string) { fmt.Fprintf(&lines, "  %-8s %s\n", name, term.Cell(value)) }
	if line > 0 {
		fmt.Fprintf(&lines, "line %d: ", line)
	}
	channel := r.Channel
	if channel == "" {
		channel = "the webhook's channel, or the workers' SLACK_CHANNEL, which is not set here"
	}
	fmt.Fprintf(&lines, "would be posted to %s\n", term.Cell(channel))
	if r.ThreadTS != "" {
		add("thread", r.ThreadTS)
	}
	if r.Text != "" {
		note := ""
		if r.Cut {
			note = ", cut because Slack would split it"
		}
		text := strings.TrimSpace(strings.ReplaceAll(r.Text, "\n", " "))
		fmt.Fprintf(&lines, "  %-8s %s%s: %s\n", "text", term.Count(r.Length, "character"), note, term.Printable(text))
	}
	addJSON(&lines, "blocks", r.Blocks)
	addJSON(&lines, "attachments", r.Attachments)
	id := r.EventID
	if id == "" {
		id = "none; it gets one when it is published"
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
