package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	"notifier/internal/term"
)

// natsTimeout bounds the requests of why to NATS.
const natsTimeout = 10 * time.Second

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "show the outcomes of one event, or where it is now",
		ArgsUsage: "EVENT_ID",
		Description: `EVENT_ID is the event_id of a log line. Several events may have the same id: one
for each category and, for CloudEvents, each source. The rows are like those of "notifier events". An
event in flight has a line with its attempts, its last error and the conditions it waits for. NATS keeps
outcomes for 24 hours, in a storm not all of them. Redis knows events in flight and those sent within
DEDUPE_WINDOW. The exit code is 1 if nothing is known about the event.

Example:
   notifier why deploy-1234`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each outcome and each event in flight"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%d arguments, expected one EVENT_ID", cmd.NArg())
			}
			if cmd.Args().First() == "" {
				return cmdline.Usage(cmd, "EVENT_ID is empty, expected the event_id of a log line")
			}
			s, err := settings.Load(settings.GroupRedis, settings.GroupLimits, settings.GroupNATS)
			if err != nil {
				return err
			}
			return openStore(s.Store, s.Deciding(), func(store app.Store) error {
				return runWhy(ctx, cmd, store, s.NATS)
			})
		},
	}
}

// runWhy reads Redis and NATS at the same time. If one of them fails, runWhy shows the result of the other
// and writes the error to standard error.
func runWhy(ctx context.Context, cmd *cli.Command, store app.Store, s settings.NATS) error {
	id := cmd.Args().First()
	unknown := func(what string, err error) { cmdline.Warn(cmd, fmt.Errorf("%s unknown: %w", what, err)) }
	var records []outcome.Record
	var unread string
	var natsErr error
	var reading sync.WaitGroup
	reading.Go(func() { records, unread, natsErr = readOutcomes(ctx, s, id) })
	inRedis, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	traces, redisErr := store.Limiter.Trace(inRedis, id)
	flights, flightErr := store.Status.Flights(inRedis, id, traces)
	reading.Wait()

	if redisErr != nil {
		unknown("events in flight are", fmt.Errorf("REDIS_URL: %w", redisErr))
	}
	if flightErr != nil {
		unknown("the last error of an event in flight is", fmt.Errorf("REDIS_URL: %w", flightErr))
	}
	if natsErr != nil {
		unknown("recorded outcomes are", natsErr)
	}
	records = addSent(records, traces, id)
	if len(records) == 0 && len(flights) == 0 {
		where := "in a storm only some outcomes are recorded, the log has all"
		if natsErr != nil || redisErr != nil {
			where = "some sources could not be read, the log has all outcomes"
		}
		return fmt.Errorf("nothing is known about %s%s; %s", term.Printable(id), unread, where)
	}
	out := cmd.Root().Writer
	if cmd.Bool("json") {
		return errors.Join(writeJSON(out, records), writeJSON(out, flights))
	}
	return writeOutcomes(out, records, flights)
}

func writeOutcomes(out io.Writer, records []outcome.Record, flights []status.Flight) error {
	if len(records) > 0 {
		if err := writeRecords(out, records); err != nil {
			return err
		}
	}
	for _, f := range flights {
		if _, err := fmt.Fprintln(out, term.Printable(f.String())); err != nil {
			return err
		}
	}
	return nil
}

// readOutcomes reads the records of an event from NATS. If it finds none, unread counts the events that no
// worker has read, as part of a sentence.
func readOutcomes(
	ctx context.Context, s settings.NATS, id string,
) (records []outcome.Record, unread string, err error) {
	ctx, cancel := context.WithTimeout(ctx, natsTimeout)
	defer cancel()
	err = readRecords(ctx, s, "notifier why", func(ctx context.Context, from recordSource) error {
		var err error
		records, err = from.reader.Of(ctx, id, "")
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
	info, err := feed.LookUp(ctx, js, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Sprintf("; stream %s does not exist", s.Stream)
	case err != nil:
		if denied := context.Cause(ctx); denied != nil {
			err = denied
		}
		return fmt.Sprintf("; the number of unread events is unknown: %v", err)
	}
	text := fmt.Sprintf("; %s unread in stream %s", term.Count(info.NumPending, "event"), s.Stream)
	if info.NumAckPending > 0 {
		text += fmt.Sprintf(", %d in flight", info.NumAckPending)
	}
	if stuck := feed.StuckAtLeast(info); stuck > 0 {
		text += fmt.Sprintf(", at least %d never delivered again (max_deliver)", stuck)
	}
	if fault, _, withheld := (feed.Reading{Subject: s.Pattern.String()}).Withheld(info); withheld {
		text += "; " + fault.Problem
	}
	return text
}

// addSent adds sent events that only Redis knows, and sorts the records by time. A trace without a source
// matches any record of its category.
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
