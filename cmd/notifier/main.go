// Notifier sends events from NATS to Slack and never more of them than its limits allow, over all its replicas.
//
// Each command is in a file of its own; serve.go is the worker. Settings are read in environment.go and checked in
// config.go, and nowhere else.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // at run time
	exitUsage  = 2 // bad usage or bad settings
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: what it gets is all that it uses of the process, but for the environment.
func run(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	root := rootCommand()
	root.Reader, root.Writer, root.ErrWriter = in, out, errOut
	return exitCode(root.Run(ctx, shortHelp(arguments)), errOut)
}

// exitCode tells the error to the user and gives the code that goes with it.
func exitCode(err error, out io.Writer) int {
	var usage *usageError
	var wrong *faults
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(out, "notifier: %v\n", err)
		return exitUsage
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintf(out, "notifier: wrong settings:\n  %s\n", strings.Join(wrong.lines, "\n  "))
		return exitUsage
	default:
		_, _ = fmt.Fprintf(out, "notifier: %v\n", err)
		return exitFailed
	}
}

// usageError is a command line that cannot be carried out.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// noArguments refuses what a command would silently ignore.
func noArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage(cmd, fmt.Sprintf("unexpected argument %q", cmd.Args().First()))
	}
	return nil
}

// usage shows how the command is called, and gives the error.
func usage(cmd *cli.Command, text string) error {
	_, _ = fmt.Fprintf(cmd.Root().ErrWriter, "Usage: %s\n", usageLine(cmd))
	return &usageError{text + fmt.Sprintf("; see %q", cmd.FullName()+" -"+helpFlag)}
}
