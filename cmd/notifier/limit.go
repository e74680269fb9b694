package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/settings"
	"notifier/internal/status/config"
	"notifier/internal/steering"
)

func limitCommand() *cli.Command {
	return &cli.Command{
		Name:  "limit",
		Usage: "apply another limit to a scope temporarily, or list such limits",
		Description: `All workers follow within two seconds, without a restart. A SCOPE is global,
group/NAME or category/NAME. The limits of the settings hold again when the time is over. Without a
command it lists the temporary limits that are in force.

Examples:
   notifier limit set category/errors 50/30m -for 2h -reason "incident 4711"
   notifier limit`,
		Flags:  []cli.Flag{jsonFlag()},
		Action: listOrders(steering.Limit),
		Commands: []*cli.Command{
			{
				Name:      "set",
				Usage:     "apply another limit to a scope temporarily",
				ArgsUsage: "SCOPE LIMIT",
				Description: `LIMIT is written as in LIMIT_GLOBAL: 50/30m, or several tiers joined with
+. It replaces the whole limit of the scope; a category's goes before every pattern of LIMIT_OVERRIDES.
The limits of the wider scopes still hold: an event of a category also has to fit the global limit.
Events admitted before count, and those admitted meanwhile count when the limit of the settings holds
again. If only one of the two limits counts in buckets (:PRECISION, :fixed), both forms are counted, and
the time until there is room is a lower bound.

Example:
   notifier limit set category/errors 50/30m -for 2h -reason "incident 4711"`,
				Flags:        orderFlags(),
				ArgValidator: checkLimitArguments,
				Action:       runLimitSet,
			},
			{
				Name:      "end",
				Usage:     "end a temporary limit before its time, and list the others",
				ArgsUsage: "SCOPE",
				Description: `The limit of the settings holds again. The exit code is 1 if there is no
such limit.

Example:
   notifier limit end category/errors`,
				Action: endOrder(steering.Limit),
			},
			listCommand(steering.Limit, "list the temporary limits that are in force"),
		},
	}
}

// checkLimitArguments checks the limit before the flags. The library takes -1/1m for an argument and all
// flags behind it for arguments, too, so it would report a missing flag.
func checkLimitArguments(_ context.Context, cmd *cli.Command) error {
	if cmd.NArg() < 2 {
		return nil
	}
	if _, err := steering.NewLimit(cmd.Args().First(), cmd.Args().Get(1), "", ""); err != nil {
		return cmdline.Usage(cmd, err.Error())
	}
	return nil
}

func runLimitSet(ctx context.Context, cmd *cli.Command) error {
	if cmd.NArg() != 2 {
		return cmdline.Usagef(cmd,
			"%d arguments, expected SCOPE and LIMIT such as category/errors 50/30m", cmd.NArg())
	}
	order, err := steering.NewLimit(cmd.Args().First(), cmd.Args().Get(1), author(cmd), cmd.String("reason"))
	if err != nil {
		return cmdline.Usage(cmd, err.Error())
	}
	check := func(replicas []config.Deciding) error { return checkLimit(cmd, replicas, order) }
	return setOrder(ctx, cmd, order, check, settings.GroupLimits, "NATS_SUBJECT")
}

// checkLimit rejects a limit of a category that never occurs, and a limit in buckets if slots are reserved
// for the category.
func checkLimit(cmd *cli.Command, replicas []config.Deciding, order steering.Order) error {
	scope, err := steering.ParseScope(order.Target)
	if err != nil || scope.Category == "" {
		return err
	}
	if err := checkOccurs(cmd, replicas, scope.Category); err != nil {
		return err
	}
	limit := steering.Temporary([]steering.Order{order}).Categories[scope.Category]
	for _, replica := range replicas {
		if err := replica.Rules.CheckReserved(scope.Category, limit); err != nil {
			return cmdline.Usage(cmd, err.Error())
		}
	}
	return nil
}
