package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/steering"
	"notifier/internal/term"
)

func muteCommand() *cli.Command {
	inForce := orderList{steering.Mute, "mute", "list the mutes in force", "nothing is muted"}
	return &cli.Command{
		Name:  "mute",
		Usage: "drop the events of a category temporarily, or list what is dropped",
		Description: `All replicas follow within two seconds, without a restart. Matching events are dropped (muted) and charged to nothing. An admitted
event that waits for its post is dropped, too, and refunded. Without a command it lists the mutes in force.

Examples:
   notifier mute add errors.db -for 2h -reason "database is being moved"
   notifier mute`,
		Flags:    []cli.Flag{listFlag()},
		Commands: []*cli.Command{muteAddCommand(), muteEndCommand(), inForce.command()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return cmdline.Usage(cmd, cmdline.UnknownCommand(cmd, cmd.Args().First()))
			}
			return inForce.run(ctx, cmd)
		},
	}
}

func muteAddCommand() *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "drop the events of a category temporarily",
		ArgsUsage: "PATTERN",
		Description: `PATTERN is a category, or a pattern as in LIMIT_OVERRIDES: "team-a.>" for a category of team-a, ">" for all. A second mute of
the same pattern replaces the first.

Examples:
   notifier mute add errors.db -for 2h -reason "database is being moved"
   notifier mute add 'team-a.>' -for 30m`,
		Flags: orderFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one PATTERN such as errors, and -for DURATION", term.Count(cmd.NArg(), "argument"))
			}
			length, err := parseLength(cmd)
			if err != nil {
				return err
			}
			order, err := steering.NewMute(cmd.Args().First(), who(cmd), cmd.String("reason"))
			if err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			var notes []string
			if order.Target == ">" {
				notes = append(notes, "That is every category: nothing is sent until then.")
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
				all, err := s.running(ctx)
				if err != nil {
					return err
				}
				if err := checkOccurs(cmd, all, order.Target); err != nil {
					return err
				}
				return s.set(ctx, order, length, notes...)
			})
		},
	}
}

func muteEndCommand() *cli.Command {
	return &cli.Command{
		Name:      "end",
		Usage:     "end a mute before its time",
		ArgsUsage: "PATTERN",
		Description: `PATTERN is written as "notifier mute" lists it. Events that it dropped are not sent. The exit code is 1 if there is no such
mute.

Example:
   notifier mute end errors.db`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one PATTERN", term.Count(cmd.NArg(), "argument"))
			}
			target := cmd.Args().First()
			if _, err := steering.NewMute(target, "", ""); err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
				return s.end(ctx, steering.Mute, target, fmt.Sprintf("%q is not muted", target))
			})
		},
	}
}
