package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/steering"
	"notifier/internal/term"
)

func limitCommand() *cli.Command {
	inForce := orderList{
		steering.Limit, "limit", "list the temporary limits that are in force", "no temporary limit is in force",
	}
	return &cli.Command{
		Name:  "limit",
		Usage: "apply another limit to a scope temporarily, or list such limits",
		Description: `All replicas follow within two seconds, without a restart. A SCOPE is global, group/NAME or category/NAME. The limits of the
settings hold again when the time is over. Without a command it lists the temporary limits that are in force.

Examples:
   notifier limit set category/errors 50/30m -for 2h -reason "incident 4711"
   notifier limit`,
		Flags: []cli.Flag{listFlag()},
		Commands: []*cli.Command{
			limitSetCommand(), limitEndCommand(), inForce.command(),
			moved("clear", `"notifier limit clear" is now "notifier limit end SCOPE"`),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return cmdline.Usage(cmd, cmdline.UnknownCommand(cmd, cmd.Args().First()))
			}
			return inForce.run(ctx, cmd)
		},
	}
}

func limitSetCommand() *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "apply another limit to a scope temporarily",
		ArgsUsage: "SCOPE LIMIT",
		Description: `LIMIT is written as in LIMIT_GLOBAL: 50/30m, or several tiers joined with +. It replaces the whole limit of the scope; a
category's goes before every pattern of LIMIT_OVERRIDES. The limits of the wider scopes still hold: an event of a category
also has to fit the global limit. Events admitted before count, and those admitted meanwhile count when the limit of the
settings holds again. If only one of the two limits counts in buckets (:PRECISION, :fixed), both forms are counted, and the
time until there is room is a lower bound.

Example:
   notifier limit set category/errors 50/30m -for 2h -reason "incident 4711"`,
		Flags: orderFlags(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 2 {
				return cmdline.Usagef(cmd, "%s, expected SCOPE and LIMIT such as category/errors 50/30m",
					term.Count(cmd.NArg(), "argument"))
			}
			length, err := parseLength(cmd)
			if err != nil {
				return err
			}
			order, err := steering.NewLimit(cmd.Args().First(), cmd.Args().Get(1), who(cmd), cmd.String("reason"))
			if err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
				if err := s.checkLimit(ctx, cmd, order); err != nil {
					return err
				}
				return s.set(ctx, order, length)
			})
		},
	}
}

// checkLimit rejects a limit of a category that never occurs, and a limit in buckets if slots are reserved for
// the category.
func (s steer) checkLimit(ctx context.Context, cmd *cli.Command, order steering.Order) error {
	scope, err := steering.ParseScope(order.Target)
	if err != nil || scope.Category == "" {
		return err
	}
	all, err := s.running(ctx)
	if err != nil {
		return err
	}
	if err := checkOccurs(cmd, all, scope.Category); err != nil {
		return err
	}
	limit := steering.Temporary([]steering.Order{order}).Categories[scope.Category]
	for _, replica := range all {
		if err := replica.Rules.CheckReserved(scope.Category, limit); err != nil {
			return cmdline.Usage(cmd, err.Error())
		}
	}
	return nil
}

func limitEndCommand() *cli.Command {
	return &cli.Command{
		Name:      "end",
		Usage:     "end a temporary limit before its time",
		ArgsUsage: "SCOPE",
		Description: `The limit of the settings holds again. The exit code is 1 if there is no such limit.

Example:
   notifier limit end category/errors`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.NArg() != 1 {
				return cmdline.Usagef(cmd, "%s, expected one SCOPE", term.Count(cmd.NArg(), "argument"))
			}
			target := cmd.Args().First()
			if _, err := steering.ParseScope(target); err != nil {
				return cmdline.Usage(cmd, err.Error())
			}
			return withSteering(ctx, cmd, func(ctx context.Context, s steer) error {
				return s.end(ctx, steering.Limit, target, fmt.Sprintf("%s has no temporary limit", target))
			})
		},
	}
}
