// Notifier sends events from NATS to Slack and never more of them than its limits allow, over all its
// workers.
//
// This package is the command line and nothing else: a file per command, with its flags, its action and its
// output. Settings come from internal/settings, the worker is in internal/app.
//
// This program is deployed and contains no embedded servers. cmd/notifier-dev has the commands that need
// them.
package main

import (
	"context"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
)

// exitUnsent is the exit code of publish -wait where the event was dropped or is dead.
const exitUnsent = 3

func main() { os.Exit(cmdline.Main(run)) }

// run executes the program. Its only inputs are the parameters and the environment.
func run(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	return cmdline.Run(ctx, rootCommand(), arguments, in, out, errOut)
}

// rootCommand is notifier without a command: serve.
func rootCommand() *cli.Command {
	return cmdline.Program(&cli.Command{
		Name:  "notifier",
		Usage: "send events from NATS to Slack, within limits that hold across all workers",
		Description: `Without a command it runs "notifier serve". Settings come from environment
variables; docs/configuration.md lists them.

Example:
   notifier check`,
		Action: runServe,
		Commands: []*cli.Command{
			serveCommand(),
			checkCommand(),
			publishCommand(),
			statusCommand(),
			whyCommand(),
			eventsCommand(),
			muteCommand(),
			limitCommand(),
			deadCommand(),
			versionCommand(),
			healthcheckCommand(),
		},
	})
}
