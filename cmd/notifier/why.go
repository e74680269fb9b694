package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/ratelimit"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "tell what became of one event that was admitted or sent",
		ArgsUsage: "EVENT_ID",
		Description: `The id is the log's event_id. Redis knows events that are in flight, that hold a slot, or that were sent within
DEDUPE_WINDOW. It stores nothing of an event that was refused: for those look into the log, and for dead ones at
"notifier dead list". The exit code is 0 also when the event is not known; -json says so in "state".

Example:
   notifier why deploy-1234`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write it as JSON"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return usage(cmd, fmt.Sprintf("%d arguments, expected one EVENT_ID", cmd.NArg()))
			}
			s, err := openStore()
			if err != nil {
				return err
			}
			defer s.close()
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			id := cmd.Args().First()
			categories, err := s.limiter.Categories(ctx)
			if err != nil {
				return fmt.Errorf("REDIS_URL: %w", err)
			}
			trace, err := s.limiter.Trace(ctx, id, categories...)
			if err != nil {
				return fmt.Errorf("REDIS_URL: %w", err)
			}
			out := cmd.Root().Writer
			if cmd.Bool("json") {
				return json.NewEncoder(out).Encode(newWhyLine(id, trace))
			}
			for _, line := range whyText(id, trace) {
				if _, err := fmt.Fprintln(out, line); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// whyLine is the answer for scripts. Times that are not known are left out.
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
			fmt.Sprintf("%s is not known: it was dropped or dead-lettered, was sent longer ago than DEDUPE_WINDOW, or never came.", id),
			"Nothing is stored of refused events. The log has a line for each: look for this event_id there.",
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
		add("%s%s was admitted; its record has gone, its slot is still taken.", id, of)
	}
	if !trace.Admitted.IsZero() {
		add("  admitted  %s", stamp(trace.Admitted))
	}
	if trace.Posts > 0 {
		add("  posted    %s, attempt %d; nobody knows yet how it ended", stamp(trace.LastPost), trace.Posts)
	}
	if !trace.Sent.IsZero() {
		add("  sent      %s", stamp(trace.Sent))
	}
	return lines
}
