// Package cli holds the command-line parts that notifier and notifier-dev share: exit codes and the display
// of errors. It knows no command.
//
// The command library is urfave/cli: it takes flags with one dash or two, before and after arguments, and
// brings no dependency of its own. Help and completion are the library's, with a few exceptions below, each
// with its reason.
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

// Run runs a Program. It uses its parameters and the environment, and no other state of the process.
func Run(
	ctx context.Context,
	root *cli.Command,
	arguments []string,
	in io.Reader,
	out, errOut io.Writer,
) int {
	errOut = term.Escaper(errOut) // errors quote replies of servers
	root.Reader, root.Writer, root.ErrWriter = in, out, errOut
	return exitCode(root.Name, root.Run(ctx, arguments), errOut)
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
		_, _ = fmt.Fprintf(
			out,
			"%s: invalid configuration:\n  %s\n",
			program,
			strings.Join(problems.Lines(), "\n  "),
		)
		return ExitUsage
	default:
		_, _ = fmt.Fprintf(out, "%s: %v\n", program, err)
		return ExitFailed
	}
}

// Program prepares a root command.
func Program(root *cli.Command) *cli.Command {
	// The library's help command is below every command, where it takes the place of a category named help.
	root.HideHelpCommand = true
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run gives the exit code
	SetUp(root)
	return root
}

// SetUp makes a command and its subcommands report an invalid command line in two lines on standard error,
// with exit code 2. The library would write the whole help to standard output.
func SetUp(cmd *cli.Command) {
	cmd.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return Usage(cmd, flagError(cmd, err))
	}
	// "publish errors -h" is help about publish; the library looks for a command errors below it, and fails.
	cmd.CommandNotFound = func(ctx context.Context, cmd *cli.Command, _ string) { _ = Help(ctx, cmd) }
	if cmd.Action == nil { // the library would show help, also for a command that does not exist
		cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return Usage(cmd, UnknownCommand(cmd, cmd.Args().First()))
			}
			return Help(ctx, cmd)
		}
	}
	for _, below := range cmd.Commands {
		SetUp(below)
	}
}

// Help shows the help about a command.
func Help(ctx context.Context, cmd *cli.Command) error {
	if cmd == cmd.Root() {
		return cli.ShowRootCommandHelp(cmd)
	}
	return cli.ShowCommandHelp(ctx, cmd.Lineage()[1], cmd.Name)
}

// init lets help show flags with one dash, as all documents and examples do; the library shows two. A default
// of 0 means that there is no such bound, which the text says.
func init() {
	library := cli.FlagStringer
	cli.FlagStringer = func(flag cli.Flag) string {
		names, text, _ := strings.Cut(library(flag), "\t")
		return strings.ReplaceAll(names, "--", "-") + "\t" + strings.TrimSuffix(text, " (default: 0)")
	}
}
