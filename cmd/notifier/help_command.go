package main

import (
	"context"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
)

// helpCommand stands in for the library's, which knows no command below another one, and ends with exit code
// 3 where there is no such command.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show help about a command",
		ArgsUsage: "[COMMAND]",
		Description: `It shows the same as -h behind the command. Without COMMAND it lists all commands.

Examples:
   notifier help publish
   notifier help dead replay`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			about := cmd.Root()
			for _, name := range cmd.Args().Slice() {
				below := about.Command(name)
				if below == nil {
					return cmdline.Usage(about, cmdline.UnknownCommand(about, name))
				}
				about = below
			}
			return cmdline.Help(ctx, about)
		},
	}
}
