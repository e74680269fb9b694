package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/status/config"
	"notifier/internal/steering"
)

func muteCommand() *cli.Command {
	return &cli.Command{
		Name:  "mute",
		Usage: "drop the events of a category temporarily, or list what is dropped",
		Description: `All workers follow within two seconds, without a restart. Matching events are
dropped (muted) and charged to nothing. An admitted event that waits for its post is dropped, too, and
refunded. If an earlier post of it may have arrived, it keeps its slots. Without a command it lists
the mutes in force.

Examples:
   notifier mute add errors.db -for 2h -reason "database is being moved"
   notifier mute`,
		Flags:  []cli.Flag{jsonFlag()},
		Action: listOrders(steering.Mute),
		Commands: []*cli.Command{
			{
				Name:      "add",
				Usage:     "drop the events of a category temporarily",
				ArgsUsage: "PATTERN",
				Description: `PATTERN is a category, or a pattern as in LIMIT_OVERRIDES: "team-a.>" for
the categories of team-a, ">" for all. A second mute of the same pattern replaces the first.

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
				Description: `PATTERN is written as "notifier mute" lists it. Events that it dropped are
not sent. The exit code is 1 if there is no such mute.

Example:
   notifier mute end errors.db`,
				Action: endOrder(steering.Mute),
			},
			listCommand(steering.Mute, "list the mutes in force"),
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
	check := func(replicas []config.Deciding) error { return checkOccurs(cmd, replicas, order.Target) }
	return setOrder(ctx, cmd, order, check, "NATS_SUBJECT")
}
