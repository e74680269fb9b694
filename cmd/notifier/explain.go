package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"notifier/internal/app"
	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status"
	"notifier/internal/term"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "show what applies to one category, and whether an event of it would be sent now",
		ArgsUsage: "CATEGORY",
		Description: `Shows the group, the limits with how much of each is used and which setting they are from, what is kept for it
(LIMIT_RESERVE), its channel, and the pace and pauses there; and whether an event would be sent now, or else which limit
refuses it and when there is room; or why nothing is sent at all. The category need not have had an event. Reads only Redis and uses no slot. The settings
are those of the running workers; while none runs, those that are set here. An event may name another channel, and cost more
than one slot: that is not looked at.

Examples:
   notifier explain errors
   notifier explain -json team-a.job1 | jq .forecast`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write one JSON object"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usage(cmd, fmt.Sprintf("%s, expected one CATEGORY", term.Count(cmd.NArg(), "argument")))
			}
			category := cmd.Args().First()
			if err := status.CheckCategory(category); err != nil {
				return cmdline.Usage(cmd, fmt.Sprintf("CATEGORY %q %v", category, err))
			}
			return explain(ctx, category, cmd.Bool("json"), cmd.Root().Writer)
		},
	}
}

// explain writes what applies to a category.
func explain(ctx context.Context, category string, asJSON bool, out io.Writer) error {
	app.SilenceRedis()
	s, own, err := settings.LoadStatusConfig()
	if err != nil {
		return err
	}
	defer func() { _ = s.Redis.Close() }() // nothing is written through it
	store, err := app.OpenStore(s, own)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	explanation, err := store.Status.Explain(ctx, category)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	if asJSON {
		return term.NewJSON(out).Encode(explanation)
	}
	_, err = io.WriteString(out, explanation.Lines(term.ScreenOf(out)))
	return err
}
