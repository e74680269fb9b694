package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/outcome/recent"
)

// mostEvents bounds -n.
const mostEvents = 10_000

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "show what became of recent events, those dropped and dead included",
		Description: `Workers record what became of events in the stream <NATS_STREAM>_EVENTS, for 24 hours and without payloads. The newest is last.
In a storm only some are recorded, of each category and reason: the last line says how many are left out, and the log has all of
them.

Examples:
   notifier events -outcome dead
   notifier events -category deploys -since 1h`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "category", Usage: "only events of this `CATEGORY`, exactly"},
			&cli.StringFlag{
				Name:  "outcome",
				Usage: "only events with this `OUTCOME`: " + strings.Join(recent.Outcomes(), ", "),
			},
			&cli.DurationFlag{Name: "since", Usage: "only what was settled in the last `DURATION`, such as 30m"},
			&cli.IntFlag{Name: "n", Value: 50, Usage: "show the newest `N`"},
			&cli.BoolFlag{Name: "json", Usage: "write each event as a line of JSON instead of the table"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			filter, err := parseEvents(cmd, time.Now())
			if err != nil {
				return err
			}
			list := eventList{
				filter: filter,
				since:  cmd.Duration("since"),
				json:   cmd.Bool("json"),
				out:    cmd.Root().Writer,
				errOut: cmd.Root().ErrWriter,
			}
			return readOutcomes(ctx, "notifier events", list.run)
		},
	}
}

// parseEvents checks the flags.
func parseEvents(cmd *cli.Command, now time.Time) (recent.Filter, error) {
	filter := recent.Filter{Outcome: cmd.String("outcome"), Limit: cmd.Int("n")}
	err := cmdline.NoArguments(cmd)
	if err == nil {
		filter.Category, err = categoryFlag(cmd)
	}
	since := cmd.Duration("since")
	switch {
	case err != nil:
		return filter, err
	case cmd.IsSet("outcome") && !slices.Contains(recent.Outcomes(), filter.Outcome):
		return filter, cmdline.Usagef(cmd, "-outcome %q, expected one of %s",
			filter.Outcome, strings.Join(recent.Outcomes(), ", "))
	case cmd.IsSet("since") && (since <= 0 || since > recent.MaxAge):
		return filter, cmdline.Usagef(cmd, "-since %s, expected up to %s: nothing is kept for longer", since, "24h")
	case filter.Limit < 1 || filter.Limit > mostEvents:
		return filter, cmdline.Usagef(cmd, "-n %d, expected 1 to %d", filter.Limit, mostEvents)
	}
	if since > 0 {
		filter.Since = now.Add(-since)
	}
	return filter, nil
}
