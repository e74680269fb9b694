package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/consume/feed"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

// natsTimeout bounds the requests of why to NATS.
const natsTimeout = 10 * time.Second

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show the outcomes of one event, or where it is now",
		ArgsUsage: "EVENT_ID",
		Description: `EVENT_ID is the event_id of a log line. Several events may have the same id: one for each category and, for
CloudEvents, each source. The rows are like those of "notifier events". An event in flight has a line with its
attempts, its last error and the conditions it waits for. NATS keeps outcomes for 24 hours, in a storm not all
of them. Redis knows events in flight and those sent within DEDUPE_WINDOW. The exit code is 1 if nothing is
known about the event.

Examples:
   notifier why deploy-1234
   notifier why -category deploys deploy-1234`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Usage: "only the event of this `CATEGORY`"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each outcome and each event in flight"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one EVENT_ID", term.Count(cmd.NArg(), "argument"))
			}
			if cmd.Args().First() == "" {
				return cmdline.Usage(cmd, "EVENT_ID is empty, expected the event_id of a log line")
			}
			category, err := categoryFlag(cmd)
			if err != nil {
				return err
			}
			w := why{
				id: cmd.Args().First(), category: category, json: cmd.Bool("json"),
				out: cmd.Root().Writer, errOut: cmd.Root().ErrWriter,
			}
			return withStore(func(store app.Store) error { return w.run(ctx, store) })
		},
	}
}

// why is one run of the command.
type why struct {
	id       string
	category string // empty selects all
	json     bool
	out      io.Writer
	errOut   io.Writer
}

// run reads Redis and NATS at the same time. If one of them fails, run shows the result of the other, with a note.
func (w why) run(ctx context.Context, store app.Store) error {
	var records []outcome.Record
	var unread string
	var natsErr error
	var reading sync.WaitGroup
	reading.Go(func() { records, unread, natsErr = w.readNATS(ctx) })
	inRedis, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	traces, redisErr := store.Limiter.Trace(inRedis, w.id, w.category)
	reading.Wait()

	if problems := (*settings.Problems)(nil); errors.As(natsErr, &problems) {
		return natsErr
	}
	if redisErr != nil {
		w.note("events in flight are unknown: REDIS_URL: " + redisErr.Error())
	}
	if natsErr != nil {
		w.note("recorded outcomes are unknown: " + natsErr.Error())
	}
	records = addSent(records, traces, w.id)
	traces = slices.DeleteFunc(traces, func(t ratelimit.Trace) bool { return !t.InFlight })
	if len(records) == 0 && len(traces) == 0 {
		where := "; in a storm only some outcomes are recorded, the log has all"
		if natsErr != nil || redisErr != nil {
			where = "; some sources could not be read, the log has all outcomes"
		}
		return fmt.Errorf("nothing is known about %s%s%s", term.Printable(w.id), unread, where)
	}
	var flights []inFlight
	if len(traces) > 0 {
		ctx, cancel := context.WithTimeout(ctx, redisTimeout)
		defer cancel()
		reported, err := store.Reports.Read(ctx)
		if err != nil {
			w.note("the last error of an event in flight is unknown: REDIS_URL: " + err.Error())
		}
		conditions := store.Status.Read(ctx).Conditions
		for _, trace := range traces {
			explanation, _ := store.Status.Explain(ctx, trace.Category) // an error leaves the channel unknown
			flights = append(flights, newInFlight(w.id, trace, explanation.Channel, reported, conditions))
		}
	}
	return w.write(records, flights)
}

// note writes a line to standard error.
func (w why) note(text string) { _, _ = fmt.Fprintln(w.errOut, "notifier: "+term.Printable(text)) }

func (w why) write(records []outcome.Record, flights []inFlight) error {
	if w.json {
		return errors.Join(writeJSON(w.out, records), writeJSON(w.out, flights))
	}
	if len(records) > 0 {
		if err := writeRecords(w.out, records); err != nil {
			return err
		}
	}
	for _, f := range flights {
		if _, err := fmt.Fprintln(w.out, term.Printable(f.String())); err != nil {
			return err
		}
	}
	return nil
}

// readNATS reads the records of the event. If it finds none, unread counts the events that no worker has read, as
// part of a sentence.
func (w why) readNATS(ctx context.Context) (records []outcome.Record, unread string, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsTimeout)
	defer cancel()
	err = readRecords(ctx, "notifier why", func(ctx context.Context, from recordSource) error {
		var err error
		records, err = from.reader.Of(ctx, w.id, w.category)
		if err != nil && !errors.Is(err, recent.ErrNoStream) {
			return fmt.Errorf("stream %s: %w", from.place.Stream, err)
		}
		if len(records) == 0 {
			unread = countUnread(ctx, from)
		}
		return nil
	})
	return records, unread, err
}

// countUnread counts unread events, and those that NATS never delivers again.
func countUnread(ctx context.Context, from recordSource) string {
	js, err := jetstream.New(from.connection)
	if err != nil {
		return ""
	}
	s := from.settings
	consumer, err := js.Consumer(ctx, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Sprintf("; stream %s does not exist", s.Stream)
	case err != nil:
		if denied := context.Cause(ctx); denied != nil {
			err = denied
		}
		return fmt.Sprintf("; the number of unread events is unknown: %v", err)
	}
	info := consumer.CachedInfo()
	text := fmt.Sprintf("; %s unread in stream %s", term.Count(info.NumPending, "event"), s.Stream)
	if info.NumAckPending > 0 {
		text += fmt.Sprintf(", %d in flight", info.NumAckPending)
	}
	if stuck := feed.StuckAtLeast(info); stuck > 0 {
		text += fmt.Sprintf(", at least %d never delivered again (max_deliver)", stuck)
	}
	return text
}

// addSent adds sent events that only Redis knows, and sorts the records by time. A trace without a source matches
// any record of its category.
func addSent(recorded []outcome.Record, traces []ratelimit.Trace, id string) []outcome.Record {
	records := slices.Clone(recorded)
	for _, t := range traces {
		source := event.ShownSource(t.Source)
		known := slices.ContainsFunc(recorded, func(r outcome.Record) bool {
			return r.Outcome == outcome.Sent && r.Category == t.Category && (source == "" || source == r.Source)
		})
		if t.Sent.IsZero() || known {
			continue
		}
		records = append(records, outcome.Record{
			Time: t.Sent, EventID: id, Category: t.Category, Source: source, Outcome: outcome.Sent,
		})
	}
	slices.SortStableFunc(records, func(a, b outcome.Record) int { return a.Time.Compare(b.Time) })
	return records
}

// inFlight describes an event that is admitted and not settled.
type inFlight struct {
	EventID    string             `json:"event_id"`
	Category   string             `json:"category"`
	Source     string             `json:"source,omitempty"`
	State      string             `json:"state"` // always in_flight
	Admitted   time.Time          `json:"admitted"`
	Attempts   int                `json:"attempts"` // begun posts
	LastError  string             `json:"last_error,omitempty"`
	Next       time.Time          `json:"next,omitzero"` // earliest next post
	Conditions []status.Condition `json:"conditions"`
}

// newInFlight describes an event by its trace and the reports of the replicas. The channel is its category's, unless
// a replica reports another one for the event. If it is empty, the conditions of all channels apply.
func newInFlight(
	id string, t ratelimit.Trace, channel string, reported report.Report, conditions []status.Condition,
) inFlight {
	f := inFlight{
		EventID: id, Category: t.Category, Source: event.ShownSource(t.Source), State: "in_flight",
		Admitted: t.Admitted, Attempts: t.Posts, Conditions: []status.Condition{},
	}
	for _, replica := range reported.Replicas {
		for _, failing := range replica.Snapshot.Failing {
			if failing.EventID == id && failing.Category == t.Category {
				channel, f.LastError, f.Next = failing.Channel, failing.Error, time.Time{}
				if failing.Next.After(reported.Now) { // else the attempt has begun since the heartbeat
					f.Next = failing.Next
				}
			}
		}
	}
	for _, c := range conditions {
		shared := slices.Contains([]string{"nats", "redis", "slack", "workers"}, c.Type) && c.State == status.Fail
		name, ofChannel := strings.CutPrefix(c.Type, "channel/")
		if shared || ofChannel && c.State != status.OK && (channel == "" || channel == name) {
			f.Conditions = append(f.Conditions, c)
		}
	}
	return f
}

// String describes the event in one line.
func (f inFlight) String() string {
	text := fmt.Sprintf("In flight in %s: admitted %s, %s",
		f.Category, f.Admitted.UTC().Format(time.RFC3339), term.Count(f.Attempts, "attempt"))
	if f.Source != "" {
		text += ", source " + f.Source
	}
	if f.LastError != "" {
		text += ", last error " + f.LastError
	}
	if !f.Next.IsZero() {
		text += ", next attempt " + f.Next.UTC().Format(time.RFC3339)
	}
	for _, c := range f.Conditions {
		text += fmt.Sprintf("; %s: %s", c.Type, c.Message)
	}
	return text
}
