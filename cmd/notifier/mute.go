package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/status"
	"notifier/internal/steering"
)

func muteCommand() *cli.Command {
	return &cli.Command{
		Name:  "mute",
		Usage: "drop the events of a category temporarily, or list what is dropped",
		Description: `All replicas follow within two seconds, without a restart. Matching events are dropped (muted) and charged to
nothing. An admitted event that waits for its post is dropped, too, and refunded. Without a command it lists
the mutes in force.

Examples:
   notifier mute add errors.db -for 2h -reason "database is being moved"
   notifier mute`,
		Flags:  []cli.Flag{jsonFlag()},
		Action: runMuteList,
		Commands: []*cli.Command{
			{
				Name:      "add",
				Usage:     "drop the events of a category temporarily",
				ArgsUsage: "PATTERN",
				Description: `PATTERN is a category, or a pattern as in LIMIT_OVERRIDES: "team-a.>" for the categories of team-a, ">" for all. A
second mute of the same pattern replaces the first.

Examples:
   notifier mute add errors.db -for 2h -reason "database is being moved"
   notifier mute add 'team-a.>' -for 30m`,
				Flags:  orderFlags(),
				Action: runMuteAdd,
			},
			{
				Name:      "end",
				Usage:     "end a mute before its time, and list the others",
				ArgsUsage: "PATTERN",
				Description: `PATTERN is written as "notifier mute" lists it. Events that it dropped are not sent. The exit code is 1 if there
is no such mute.

Example:
   notifier mute end errors.db`,
				Action: runMuteEnd,
			},
			{
				Name:  "list",
				Usage: "list the mutes in force",
				Description: `It does the same as "notifier mute" without a command.

Example:
   notifier mute list`,
				Flags:  []cli.Flag{jsonFlag()},
				Action: runMuteList,
			},
		},
	}
}

func runMuteAdd(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() != 1 {
		return cmdline.Usagef(cmd, "%d arguments, expected one PATTERN such as errors", cmd.NArg())
	}
	order, err := steering.NewMute(cmd.Args().First(), author(cmd), cmd.String("reason"))
	if err != nil {
		return cmdline.Usage(cmd, err.Error())
	}
	add := func(ctx context.Context, orders *steering.Store, source status.Source) error {
		replicas, err := source.Running(ctx)
		if err != nil {
			return redisError(err)
		}
		if err := checkOccurs(cmd, replicas, order.Target); err != nil {
			return err
		}
		return setOrder(ctx, cmd, orders, order)
	}
	return withOrders(ctx, add, "NATS_SUBJECT")
}

func runMuteEnd(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() != 1 {
		return cmdline.Usagef(cmd, "%d arguments, expected one PATTERN", cmd.NArg())
	}
	return withOrders(ctx, func(ctx context.Context, orders *steering.Store, _ status.Source) error {
		return endOrder(ctx, cmd, orders, steering.Mute)
	})
}

func runMuteList(ctx context.Context, cmd *cli.Command) error {
	return withOrders(ctx, func(ctx context.Context, orders *steering.Store, _ status.Source) error {
		return listOrders(ctx, cmd, orders, steering.Mute)
	})
}
