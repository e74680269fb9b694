package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	"notifier/internal/ratelimit"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show what became of one event that was admitted or sent",
		ArgsUsage: "EVENT_ID",
		Description: `The id is the event_id in the log. Redis knows events that are in flight, that hold a slot, or that were sent within
DEDUPE_WINDOW. It stores nothing about dropped events: look for those in the log, and for dead ones in
"notifier dead list". The exit code is 0 even if the event is unknown; -json reports that in "state".

Example:
   notifier why deploy-1234`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write the answer as JSON"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return usage(cmd, fmt.Sprintf("%d arguments, expected one EVENT_ID", cmd.NArg()))
			}
			why := whyOutput{id: cmd.Args().First(), json: cmd.Bool("json"), out: cmd.Root().Writer}
			return withStore(func(store app.Store) error { return why.run(ctx, store.Limiter) })
		},
	}
}

// whyOutput is one run of the command.
type whyOutput struct {
	id   string
	json bool
	out  io.Writer
}

func (w whyOutput) run(ctx context.Context, limiter *ratelimit.Limiter) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	categories, err := limiter.Categories(ctx)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	trace, err := limiter.Trace(ctx, w.id, categories...)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	if w.json {
		return json.NewEncoder(w.out).Encode(newWhyLine(w.id, trace))
	}
	for _, line := range whyText(w.id, trace) {
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			return err
		}
	}
	return nil
}

// whyLine is the answer for scripts. Unknown times are left out.
type whyLine struct {
	EventID  string     `json:"event_id"`
	State    string     `json:"state"` // sent, in_flight, admitted or unknown
	Category string     `json:"category,omitempty"`
	Admitted *time.Time `json:"admitted,omitempty"`
	Posts    int        `json:"posts,omitempty"` // in flight: posts that have begun
	LastPost *time.Time `json:"last_post,omitempty"`
	Sent     *time.Time `json:"sent,omitempty"`
}

func newWhyLine(id string, trace ratelimit.Trace) whyLine {
	line := whyLine{EventID: id, State: "unknown", Category: trace.Category, Posts: trace.Posts}
	known := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	line.Admitted, line.LastPost, line.Sent = known(trace.Admitted), known(trace.LastPost), known(trace.Sent)
	switch {
	case trace.InFlight:
		line.State = "in_flight"
	case line.Sent != nil:
		line.State = "sent"
	case line.Admitted != nil:
		line.State = "admitted"
	}
	return line
}

func whyText(id string, trace ratelimit.Trace) []string {
	if !trace.Known() {
		return []string{
			fmt.Sprintf("%s is unknown: it was dropped or dead-lettered, was sent longer ago than DEDUPE_WINDOW, or never arrived.", id),
			"Nothing is stored about dropped events. The log has a line for each: search it for this event_id.",
		}
	}
	var lines []string
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	stamp := func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	of := ""
	if trace.Category != "" {
		of = " of category " + trace.Category
	}
	switch {
	case trace.InFlight:
		add("%s%s is admitted and on its way to Slack.", id, of)
	case !trace.Sent.IsZero():
		add("%s%s was sent.", id, of)
	default:
		add("%s%s was admitted; its record has expired, its slot is still taken.", id, of)
	}
	if !trace.Admitted.IsZero() {
		add("  admitted  %s", stamp(trace.Admitted))
	}
	if trace.Posts > 0 {
		add("  posted    %s, attempt %d; its result is not known yet", stamp(trace.LastPost), trace.Posts)
	}
	if !trace.Sent.IsZero() {
		add("  sent      %s", stamp(trace.Sent))
	}
	return lines
}
