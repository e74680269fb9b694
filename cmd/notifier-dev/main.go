// Notifier-dev shows and tries notifier with nothing installed and nothing set: NATS, Redis and a fake Slack
// run in its process. It alone contains these servers; what is deployed is cmd/notifier.
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

// run is the whole program: except for the environment, it uses nothing of the process but what it is given.
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

// interruption is why ctx has ended, or err while it has not.
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
