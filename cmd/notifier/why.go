package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/ratelimit"
	"notifier/internal/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show what became of one event, and when",
		ArgsUsage: "EVENT_ID",
		Description: `The id is the event_id in the log. An id counts within its category, and a CloudEvent's together with its source, so
there can be several events with it: all of them are shown, the latest first. Redis knows events that are in flight, that
hold a slot, or that were sent within DEDUPE_WINDOW. A limit that is counted in buckets (:PRECISION, :fixed) does not keep whose
slots are taken: when an event was admitted is known there only until it is sent. What was dropped or is dead is in the stream of
outcomes in NATS for 24 hours, in a storm only in parts ("notifier events -h"). One of the two is enough for an answer. The exit
code is 0 even if the event is unknown; -json reports that in "state".

Examples:
   notifier why deploy-1234
   notifier why -category deploys deploy-1234`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Usage: "only the event of this `CATEGORY`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON, one object per event"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usage(cmd, fmt.Sprintf("%s, expected one EVENT_ID", term.Count(cmd.NArg(), "argument")))
			}
			why := whyOutput{id: cmd.Args().First(), category: cmd.String("category"), json: cmd.Bool("json"), out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter}
			return withStore(func(store app.Store) error {
				return why.run(ctx, store.Limiter)
			})
		},
	}
}

// whyOutput is one run of the command.
type whyOutput struct {
	id       string
	category string // empty: any
	json     bool
	out      io.Writer
	errOut   io.Writer
}

// run asks Redis and the stream of outcomes at the same time. One of them is enough for an answer; what is not known without the
// other is a note on standard error.
func (w whyOutput) run(ctx context.Context, limiter *ratelimit.Limiter) error {
	var found []recent.Outcome
	var unrecorded error
	var asking sync.WaitGroup
	asking.Go(func() { found, unrecorded = recorded(ctx, w.id, w.category) })
	asked, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	traces, err := limiter.Trace(asked, w.id, w.category)
	asking.Wait()
	if wrong := (*settings.Problems)(nil); errors.As(unrecorded, &wrong) {
		return unrecorded
	}
	found = notInRedis(found, traces)
	if err != nil {
		err = fmt.Errorf("REDIS_URL: %w", err)
		if len(found) == 0 {
			return err
		}
		w.note("what was admitted or sent is not known: " + err.Error())
	}
	if unrecorded != nil {
		w.note("what was dropped or dead-lettered is not known: " + unrecorded.Error())
	}
	return w.write(traces, found)
}

// note is for people, next to the answer.
func (w whyOutput) note(text string) {
	_, _ = fmt.Fprintln(w.errOut, "notifier: "+term.Printable(text))
}

func (w whyOutput) write(traces []ratelimit.Trace, found []recent.Outcome) error {
	if w.json {
		return w.writeJSON(traces, found)
	}
	var lines []string
	for _, trace := range traces {
		lines = append(lines, w.text(trace)...)
	}
	for _, o := range found {
		lines = append(lines, outcomeText(o)...)
	}
	if len(lines) == 0 {
		lines = w.unknown()
	}
	_, err := fmt.Fprintln(w.out, term.Lines(strings.Join(lines, "\n")))
	return err
}

func (w whyOutput) writeJSON(traces []ratelimit.Trace, found []recent.Outcome) error {
	if len(traces)+len(found) == 0 {
		traces = []ratelimit.Trace{{Category: w.category}}
	}
	encoder := term.NewJSON(w.out)
	for _, trace := range traces {
		if err := encoder.Encode(newWhyLine(w.id, trace)); err != nil {
			return err
		}
	}
	for _, o := range found {
		if err := encoder.Encode(newOutcomeLine(o)); err != nil {
			return err
		}
	}
	return nil
}

func (w whyOutput) unknown() []string {
	of := ""
	if w.category != "" {
		of = " in category " + w.category
	}
	return []string{
		fmt.Sprintf("%s is unknown%s: it was sent longer ago than DEDUPE_WINDOW, was dropped or dead-lettered more than 24 hours ago or in a storm, or never arrived.", w.id, of),
		"The log has a line for each event: search it for this event_id.",
	}
}

// whyLine is the answer for scripts, about one event. Unknown times are left out.
type whyLine struct {
	EventID  string     `json:"event_id"`
	State    string     `json:"state"` // sent, in_flight, dropped, dead or unknown
	Category string     `json:"category,omitempty"`
	Source   string     `json:"source,omitempty"` // what the id counts together with
	Admitted *time.Time `json:"admitted,omitempty"`
	Posts    int        `json:"posts,omitempty"` // in flight: posts that have begun
	LastPost *time.Time `json:"last_post,omitempty"`
	Sent     *time.Time `json:"sent,omitempty"`

	Recorded *whyRecorded `json:"recorded,omitempty"` // of an outcome that is not in Redis
}

func newWhyLine(id string, trace ratelimit.Trace) whyLine {
	line := whyLine{EventID: id, State: "unknown", Category: trace.Category, Source: trace.Source, Posts: trace.Posts}
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
	}
	return line
}

func (w whyOutput) text(trace ratelimit.Trace) []string {
	var lines []string
	id := w.id
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	stamp := func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	if trace.InFlight {
		add("%s of category %s is admitted and on its way to Slack.", id, trace.Category)
	} else {
		add("%s of category %s was sent.", id, trace.Category)
	}
	if trace.Source != "" {
		add("  source    %s", trace.Source)
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
