package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// maxEvents bounds -n.
const maxEvents = 10_000

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "show the outcomes of recent events",
		Description: `Workers record outcomes, without payloads, for 24 hours in the stream
<NATS_STREAM>_EVENTS. The newest line is the last. In a storm a worker records 100 events of each
category and reason, then 12 a minute. The note below the table counts the others, which are in the log.

Examples:
   notifier events -outcome dead
   notifier events -category deploys -since 1h`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Usage: "only events of this `CATEGORY`, exactly"},
			&cli.StringFlag{
				Name:  "outcome",
				Usage: "only events with this `OUTCOME`: " + strings.Join(outcome.Outcomes(), ", "),
			},
			&cli.DurationFlag{Name: "since", Usage: "only events settled in the last `DURATION`, such as 30m"},
			&cli.IntFlag{Name: "n", Value: 50, Usage: "show the newest `N`"},
			&cli.BoolFlag{Name: "json", Usage: "write a line of JSON for each event"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseEvents(cmd)
			if err != nil {
				return err
			}
			s, err := settings.Load(settings.GroupNATS)
			if err != nil {
				return err
			}
			return readRecords(ctx, s.NATS, cmd.FullName(), func(ctx context.Context, from recordSource) error {
				return listEvents(ctx, from, filter, cmd)
			})
		},
	}
}

// parseEvents checks the flags.
func parseEvents(cmd *cli.Command) (recent.Filter, error) {
	filter := recent.Filter{Outcome: cmd.String("outcome"), Limit: cmd.Int("n")}
	var err error
	if filter.Category, err = categoryFlag(cmd); err != nil {
		return filter, err
	}
	since := cmd.Duration("since")
	switch {
	case cmd.IsSet("outcome") && !slices.Contains(outcome.Outcomes(), filter.Outcome):
		return filter, cmdline.Usagef(cmd, "-outcome %q, expected one of %s",
			filter.Outcome, strings.Join(outcome.Outcomes(), ", "))
	case cmd.IsSet("since") && (since <= 0 || since > recent.MaxAge):
		return filter, cmdline.Usagef(cmd, "-since %s, expected up to 24h: older outcomes are deleted", since)
	case filter.Limit < 1 || filter.Limit > maxEvents:
		return filter, cmdline.Usagef(cmd, "-n %d, expected 1 to %d", filter.Limit, maxEvents)
	case since > 0:
		filter.Since = time.Now().Add(-since)
	}
	return filter, nil
}

// listEvents writes the records that a filter selects, and a note. With -json the note is on standard error.
func listEvents(ctx context.Context, from recordSource, filter recent.Filter, cmd *cli.Command) error {
	out, notes := cmd.Root().Writer, cmd.Root().Writer
	if cmd.Bool("json") {
		notes = cmd.Root().ErrWriter
	}
	page, err := from.reader.List(ctx, filter)
	switch {
	case errors.Is(err, recent.ErrNoStream):
		_, err = fmt.Fprintf(notes, "No events: stream %s does not exist yet, or does not allow direct reads.\n",
			from.place.Stream)
		return err
	case err != nil:
		return fmt.Errorf("stream %s: %w", from.place.Stream, err)
	case cmd.Bool("json"):
		err = writeJSON(out, page.Records)
	case len(page.Records) > 0:
		err = writeRecords(out, page.Records)
	}
	return errors.Join(err, noteOmitted(notes, page))
}

// noteOmitted counts the events that are not shown.
func noteOmitted(out io.Writer, page recent.Page) error {
	leftOut := uint64(0)
	for _, r := range page.Records {
		leftOut += r.LeftOut
	}
	text := term.Count(len(page.Records), "event") + "."
	if len(page.Records) == 0 && !page.More {
		text = `No events. If there should be some, look for "outcomes are not recorded" in the workers' logs.`
	}
	if leftOut > 0 {
		text += fmt.Sprintf(" %d more were not recorded; the log has them.", leftOut)
	}
	if page.More {
		text += " Older ones are not shown: see -n and -category."
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
