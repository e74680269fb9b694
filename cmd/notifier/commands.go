package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
)

// rootCommand is notifier without a command: serve.
func rootCommand() *cli.Command {
	return cmdline.Program(&cli.Command{
		Name:  "notifier",
		Usage: "send events from NATS to Slack, within limits that hold across all replicas",
		Description: `Without a command it runs "notifier serve". Settings come from environment variables; docs/configuration.md lists them.

Example:
   notifier check`,
		// "notifier completion bash" and the like print scripts that run notifier at each press of the key.
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(cmd *cli.Command) {
			cmd.Hidden = false
			cmdline.SetUp(cmd)
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return cmdline.Usage(cmd, cmdline.UnknownCommand(cmd, cmd.Args().First()))
			}
			return runServe(ctx, cmd.Root().Writer, cmd.Root().ErrWriter)
		},
		Commands: []*cli.Command{
			serveCommand(),
			publishCommand(),
			statusCommand(),
			whyCommand(),
			eventsCommand(),
			muteCommand(),
			limitCommand(),
			deadCommand(),
			checkCommand(),
			healthcheckCommand(),
			versionCommand(),
			helpCommand(),
			moved("explain", `"notifier explain" is now "notifier status CATEGORY"`),
			moved("unmute", `"notifier unmute" is now "notifier mute end PATTERN"`),
			moved("validate", `"notifier validate FILE" is now "notifier publish CATEGORY -dry-run @FILE"`),
			moved("demo", inNotifierDev("demo")),
			moved("dev", inNotifierDev("dev")),
			moved("simulate", inNotifierDev("simulate")),
		},
	})
}

// moved is a command of v0.1.0 that only names its successor.
func moved(name, where string) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           "not here any more",
		Description:     where,
		Hidden:          true,
		SkipFlagParsing: true,
		Action:          func(context.Context, *cli.Command) error { return &cmdline.UsageError{Text: where} },
	}
}

func inNotifierDev(name string) string {
	return name + ` is in notifier-dev: run "go run ./cmd/notifier-dev ` + name +
		`" from the sources, or the image target "demo"`
}
