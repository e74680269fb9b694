// Package cli is what the two programs, notifier and notifier-dev, need of a command line: exit codes, how
// errors are shown, help, and what is suggested for a mistyped word. It knows no command.
package cli

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

// The command library is urfave/cli: it takes flags with one dash or two, before and after arguments, and
// brings no dependency of its own.

// Exit codes. A command has another one by returning a cli.ExitCoder, once it has shown why.
const (
	ExitDone   = 0
	ExitFailed = 1 // at run time
	ExitUsage  = 2 // invalid usage or configuration
)

// Main runs a program in this process, until its end or a signal, and returns the exit code.
func Main(run func(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
}

// Run runs a Program: except for the environment, it uses nothing of the process but what it is given.
func Run(ctx context.Context, root *cli.Command, arguments []string, in io.Reader, out, errOut io.Writer) int {
	errOut = term.Escaper(errOut) // errors quote what servers answer
	root.Reader, root.Writer, root.ErrWriter = in, out, errOut
	return exitCode(root.Name, root.Run(ctx, shortHelp(arguments)), errOut)
}

// exitCode shows the error to the user and returns the code that goes with it.
func exitCode(program string, err error, out io.Writer) int {
	var exit cli.ExitCoder
	var usage *UsageError
	var problems *settings.Problems
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &exit):
		return exit.ExitCode()
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(out, "%s: %v\n", program, err)
		return ExitUsage
	case errors.As(err, &problems):
		_, _ = fmt.Fprintf(out, "%s: invalid configuration:\n  %s\n", program, strings.Join(problems.Lines(), "\n  "))
		return ExitUsage
	default:
		_, _ = fmt.Fprintf(out, "%s: %v\n", program, err)
		return ExitFailed
	}
}

// UsageError is a command line that cannot be carried out.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// NoArguments rejects what a command would silently ignore.
func NoArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return Usage(cmd, fmt.Sprintf("unexpected argument %q", cmd.Args().First()))
	}
	return nil
}

// Usage shows how the command is called, and returns the error.
func Usage(cmd *cli.Command, text string) error {
	_, _ = fmt.Fprintf(cmd.Root().ErrWriter, "Usage: %s\n", usageLine(cmd))
	return &UsageError{text + fmt.Sprintf("; see %q", cmd.FullName()+" -"+helpFlag)}
}

// Program makes a command without commands above it a program, with our help and our messages.
func Program(root *cli.Command) *cli.Command {
	root.HideVersion = true
	root.Flags = append(root.Flags, &cli.BoolFlag{Name: helpFlag, Usage: "show help"})
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run gives the exit code
	SetUp(root)
	return root
}

// SetUp gives a command and its subcommands our help and our messages for an invalid command line.
func SetUp(cmd *cli.Command) {
	cmd.HideHelp = true // help.go has it
	action := cmd.Action
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		if cmd.Bool(helpFlag) {
			return WriteHelp(cmd.Root().Writer, cmd)
		}
		return action(ctx, cmd)
	}
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return Usage(cmd, flagError(cmd, err))
	}
	for _, below := range cmd.Commands {
		SetUp(below)
	}
}
