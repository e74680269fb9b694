// Notifier sends events from NATS to Slack and never more of them than its limits allow, over all its
// replicas.
//
// This package is the command line and nothing else: a file per command, which parses flags and arguments,
// calls the packages that do the work, and writes the result. Settings come from internal/settings, the worker is
// in internal/app.
//
// This program is deployed and contains no embedded servers. cmd/notifier-dev has the commands that need them.
//
// Reading order: commands.go (the list of commands), then any command. internal/cli has exit codes and
// errors.
package main

import (
	"context"
	"io"
	"os"

	cmdline "notifier/internal/cli"
)

// exitUnsent is the exit code of publish -wait where the event was dropped or is dead.
const exitUnsent = 3

func main() { os.Exit(cmdline.Main(run)) }

// run is the whole program. Of the process it uses its arguments and the environment only.
func run(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	return cmdline.Run(ctx, rootCommand(), arguments, in, out, errOut)
}
