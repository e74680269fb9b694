package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"notifier/internal/steering"
	"notifier/internal/term"
)

func muteCommand() *cli.Command {
	return &cli.Command{
		Name:      "mute",
		Usage:     "drop the events of a category for a while, or list what is dropped",
		ArgsUsage: "[PATTERN DURATION]",
		Description: `All replicas follow within two seconds, without a restart. Until then and no longer the events that match are dropped (muted)
and charged to nothing; an admitted event whose post has not begun gives its slots back. PATTERN is a category, or a pattern
as in LIMIT_OVERRIDES: "team-a.>" for a category of team-a, ">" for all. A second mute of the same pattern replaces the first.
Without arguments it lists the mutes in force.

Examples:
   notifier mute errors.db 2h -reason "database is being moved"
   notifier mute 'team-a.>' 30m
   notifier mute`,
		Flags: append(orderFlags(), listFlag()),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			switch {
			case cmd.NArg() == 0 && !cmd.IsSet("reason"):
				return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
					return s.list(ctx, steering.Mute, "nothing is muted")
				})
			case cmd.NArg() != 2:
				return usage(cmd, fmt.Sprintf("%s, expected PATTERN and DURATION such as errors 30m", term.Count(cmd.NArg(), "argument")))
			case cmd.Bool("json"):
				return usage(cmd, "-json with arguments, expected it with the list alone")
			}
			order, err := steering.NewMute(cmd.Args().First(), who(cmd), cmd.String("reason"))
			if err != nil {
				return usage(cmd, err.Error())
			}
			length, err := parseLength(cmd, cmd.Args().Get(1))
			if err != nil {
				return err
			}
			if err := givable(cmd, order.Target); err != nil {
				return err
			}
			var notes []string
			if order.Target == ">" {
				notes = append(notes, "That is every category: nothing is sent until then.")
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error { return s.set(ctx, order, length, notes...) })
		},
	}
}

func unmuteCommand() *cli.Command {
	return &cli.Command{
		Name:      "unmute",
		Usage:     "end a mute before its time",
		ArgsUsage: "PATTERN",
		Description: `PATTERN is written as "notifier mute" lists it. What was dropped meanwhile is not sent. The exit code is 1 if there is no such
mute.

Example:
   notifier unmute errors.db`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return usage(cmd, fmt.Sprintf("%s, expected one PATTERN", term.Count(cmd.NArg(), "argument")))
			}
			target := cmd.Args().First()
			if _, err := steering.NewMute(target, "", ""); err != nil {
				return usage(cmd, err.Error())
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
				return s.clear(ctx, steering.Mute, target, fmt.Sprintf("%q is not muted", target))
			})
		},
	}
}
