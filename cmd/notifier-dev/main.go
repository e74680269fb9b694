// Notifier-dev demonstrates notifier with nothing to install or configure: NATS, Redis and a fake Slack run
// in its process. Only this program embeds these servers. Deployments run cmd/notifier.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
)

func main() { os.Exit(cmdline.Main(run)) }

// run executes the program. Its only inputs are the parameters and the environment.
func run(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	return cmdline.Run(ctx, rootCommand(), arguments, in, out, errOut)
}

func rootCommand() *cli.Command {
	return cmdline.Program(&cli.Command{
		Name:  "notifier-dev",
		Usage: "show and try notifier, with nothing installed",
		Description: `NATS, Redis and a fake Slack run in this process. What is deployed is "notifier".

Example:
   notifier-dev demo`,
		Commands: []*cli.Command{demoCommand(), devCommand(), simulateCommand()},
	})
}

// interruption returns the cause if ctx is done, and err otherwise. A cancellation becomes a readable error.
func interruption(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return errors.New("interrupted")
	default:
		return cause
	}
}
