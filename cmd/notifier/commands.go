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
		Usage: "send events from NATS to Slack, within limits that hold across all replicas",
		Description: `Without a command it runs "notifier serve". Settings come from environment variables; docs/configuration.md lists them.

Example:
   notifier demo`,
		HideVersion: true,
		// "notifier completion bash" and the like; the scripts that they print ask notifier itself at each press of the key.
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: describeCompletion,
		Flags:                           []cli.Flag{&cli.BoolFlag{Name: helpFlag, Usage: "show help"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usage(cmd, unknownCommand(cmd, cmd.Args().First()))
			}
			return runServe(ctx, cmd.Root().Writer)
		},
		Commands: []*cli.Command{
			serveCommand(),
			demoCommand(),
			devCommand(),
			publishCommand(),
			validateCommand(),
			statusCommand(),
			explainCommand(),
			whyCommand(),
			eventsCommand(),
			muteCommand(),
			limitCommand(),
			deadCommand(),
			simulateCommand(),
			checkCommand(),
			healthcheckCommand(),
			versionCommand(),
			helpCommand(),
			moved("unmute", "mute end PATTERN"),
		},
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // run gives the exit code
	}
	setUp(root)
	return root
}

// setUp gives a command and its subcommands our help and our messages for an invalid command line.
func setUp(cmd *cli.Command) {
	cmd.HideHelp = true // help.go has it
	action := cmd.Action
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		if cmd.Bool(helpFlag) {
			return writeHelp(cmd.Root().Writer, cmd)
		}
		return action(ctx, cmd)
	}
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return usage(cmd, flagError(cmd, err))
	}
	for _, below := range cmd.Commands {
		setUp(below)
	}
}

// moved is a command of v0.1.0 that has another name now.
func moved(name, now string) *cli.Command {
	return &cli.Command{
		Name: name, Hidden: true, SkipFlagParsing: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			return &usageError{fmt.Sprintf("%q is now %q", cmd.FullName(), "notifier "+now)}
		},
	}
}

// describeCompletion puts the library's own command among ours.
func describeCompletion(cmd *cli.Command) {
	cmd.Hidden = false
	cmd.Usage = "print a script that completes commands and flags in a shell"
	cmd.ArgsUsage = ""
	cmd.Description = `The script is for bash, zsh, fish or pwsh; have your shell run it when it starts.

Example:
   source <(notifier completion bash)`
	cmd.Action = func(_ context.Context, cmd *cli.Command) error {
		if cmd.Args().Present() {
			return usage(cmd, fmt.Sprintf("unknown shell %q, expected bash, zsh, fish or pwsh", cmd.Args().First()))
		}
		return usage(cmd, "missing COMMAND, expected bash, zsh, fish or pwsh")
	}
	setUp(cmd)
}
