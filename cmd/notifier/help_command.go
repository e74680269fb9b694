package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
)

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show help about a command",
		ArgsUsage: "[COMMAND]",
		Description: `It shows the same as -h behind the command. Without COMMAND it lists all commands.

Examples:
   notifier help publish
   notifier help dead replay`,
		Action: func(_ context.Context, cmd *cli.Command) error {
			about := cmd.Root()
			for _, name := range cmd.Args().Slice() {
				below := about.Command(name)
				if below == nil {
					return cmdline.Usage(about, cmdline.UnknownCommand(about, name))
				}
				about = below
			}
			return cmdline.WriteHelp(cmd.Root().Writer, about)
		},
	}
}
