package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"
)

// The command library is urfave/cli: it takes flags with one dash or two, before and after arguments, and brings no
// dependency of its own.

// rootCommand is notifier without a command: serve.
func rootCommand() *cli.Command {
	root := &cli.Command{
		Name:  "notifier",
		Usage: "send events from NATS to Slack, within limits that hold over all replicas",
		Description: `Without a command it is "notifier serve". Settings come from environment variables; the README lists them.

Example:
   notifier demo`,
		HideVersion: true,
		Flags:       []cli.Flag{&cli.BoolFlag{Name: helpFlag, Usage: "show help"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usage(cmd, fmt.Sprintf("unknown command %q", cmd.Args().First()))
			}
			return runServe(ctx, cmd.Root().Writer)
		},
		Commands: []*cli.Command{
			serveCommand(),
			demoCommand(),
			devCommand(),
			publishCommand(),
			simulateCommand(),
			healthcheckCommand(),
			versionCommand(),
		},
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // run gives the exit code
	}
	for _, cmd := range append(root.Commands, root) {
		cmd.HideHelp = true // help.go has it
		action := cmd.Action
		cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool(helpFlag) {
				return writeHelp(cmd.Root().Writer, cmd)
			}
			return action(ctx, cmd)
		}
		cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
			return usage(cmd, flagFault(err))
		}
	}
	return root
}
