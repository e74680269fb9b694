// Notifier sends events from NATS to Slack and never more of them than its limits allow, over all its replicas.
//
// This package is the command line and nothing else: a file per command, which parses flags and arguments, calls the
// packages that do the work, and writes what they return. It does not know how anything is done. Settings come from
// internal/settings, the worker is in internal/app.
//
// Reading order: main.go (exit codes and errors), commands.go (the list of commands), help.go, then any command.
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

	"notifier/internal/settings"
	"notifier/internal/term"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // at run time
	exitUsage  = 2 // invalid usage or configuration
	exitUnsent = 3 // publish -wait: the event was dropped or is dead
)

// errUnsent means that the command has shown why an event was not sent.
var errUnsent = errors.New("the event was not sent")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program: except for the environment, it uses nothing of the process but what it is given.
func run(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int {
	errOut = term.Escaper(errOut) // errors quote what servers answer
	root := rootCommand()
	root.Reader, root.Writer, root.ErrWriter = in, out, errOut
	return exitCode(root.Run(ctx, shortHelp(arguments)), errOut)
}

// exitCode shows the error to the user and returns the code that goes with it.
func exitCode(err error, out io.Writer) int {
	var usage *usageError
	var problems *settings.Problems
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUnsent):
		return exitUnsent
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(out, "notifier: %v\n", err)
		return exitUsage
	case errors.As(err, &problems):
		_, _ = fmt.Fprintf(out, "notifier: invalid configuration:\n  %s\n", strings.Join(problems.Lines(), "\n  "))
		return exitUsage
	default:
		_, _ = fmt.Fprintf(out, "notifier: %v\n", err)
		return exitFailed
	}
}

// usageError is a command line that cannot be carried out.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// noArguments rejects what a command would silently ignore.
func noArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return usage(cmd, fmt.Sprintf("unexpected argument %q", cmd.Args().First()))
	}
	return nil
}

// usage shows how the command is called, and returns the error.
func usage(cmd *cli.Command, text string) error {
	_, _ = fmt.Fprintf(cmd.Root().ErrWriter, "Usage: %s\n", usageLine(cmd))
	return &usageError{text + fmt.Sprintf("; see %q", cmd.FullName()+" -"+helpFlag)}
}
