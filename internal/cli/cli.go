// Package cli holds the command-line parts that notifier and notifier-dev share: exit codes and the display
// of errors. It knows no command.
//
// The command library is urfave/cli. Help, completion and the texts of its errors are the library's. Without
// the settings below, an invalid command line would print the whole help to standard output, or exit with 3.
package cli

import (
	"cmp"
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

// Exit codes. A command returns another one as a cli.ExitCoder, after it has printed the reason.
const (
	ExitDone   = 0
	ExitFailed = 1 // at run time
	ExitUsage  = 2 // invalid usage or settings
)

// Main runs a program in this process until it ends, and returns the exit code. SIGTERM, SIGINT or SIGHUP
// ends the context; a second SIGTERM or SIGINT ends the process.
func Main(run func(ctx context.Context, arguments []string, in io.Reader, out, errOut io.Writer) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A second SIGHUP ends nothing: a closed terminal sends several, and systemd one right after SIGTERM.
	// Under nohup the signal is ignored, which listening would undo.
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
}

// Program prepares a root command for Run.
func Program(root *cli.Command) *cli.Command {
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run returns the exit code
	root.ArgValidator = checkArguments
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = setUp
	setUp(root)
	root.HideHelpCommand = false
	return root
}

func setUp(cmd *cli.Command) {
	// "notifier status help" is about a category named help.
	cmd.HideHelpCommand = true
	cmd.OnUsageError = func(ctx context.Context, cmd *cli.Command, err error, _ bool) error {
		// A flag behind an unknown command is unknown, too.
		return cmp.Or(checkArguments(ctx, cmd), Usage(cmd, err.Error()))
	}
	// For "publish errors -h" the library looks for a command errors below publish.
	cmd.CommandNotFound = func(ctx context.Context, cmd *cli.Command, _ string) {
		if cmd == cmd.Root() {
			_ = cli.ShowRootCommandHelp(cmd)
			return
		}
		_ = cli.ShowCommandHelp(ctx, cmd.Lineage()[1], cmd.Name)
	}
	for _, below := range cmd.Commands {
		setUp(below)
	}
}

// checkArguments rejects arguments of a command that takes none.
func checkArguments(_ context.Context, cmd *cli.Command) error {
	switch {
	case !cmd.Args().Present():
		return nil
	case len(cmd.Commands) > 0:
		return Usagef(cmd, "unknown command %q", cmd.Args().First())
	case cmd.ArgsUsage == "":
		return Usagef(cmd, "unexpected argument %q", cmd.Args().First())
	}
	return nil
}

// Run runs a Program and returns its exit code. Run uses its parameters and the environment, and no other
// state of the process. A command may replace the root's ErrWriter, to which Run writes the error.
func Run(
	ctx context.Context,
	root *cli.Command,
	arguments []string,
	in io.Reader,
	out, errOut io.Writer,
) int {
	root.Reader, root.Writer = in, out
	root.ErrWriter = term.Escaper(errOut) // errors quote replies of servers
	err := root.Run(ctx, arguments)
	var exit cli.ExitCoder
	var problems *settings.Problems
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &exit):
		return exit.ExitCode()
	case errors.As(err, &problems):
		lines := strings.Join(problems.Lines(), "\n  ")
		_, _ = fmt.Fprintf(root.ErrWriter, "%s: invalid configuration:\n  %s\n", root.Name, lines)
		return ExitUsage
	}
	_, _ = fmt.Fprintf(root.ErrWriter, "%s: %v\n", root.Name, err)
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailed
}

// Warn writes an error that does not end the command, on one line.
func Warn(cmd *cli.Command, err error) {
	root := cmd.Root()
	_, _ = fmt.Fprintf(root.ErrWriter, "%s: %s\n", root.Name, term.Printable(err.Error()))
}

// UsageError is the error of an invalid command line.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Usage returns a UsageError that refers to the help of a command.
func Usage(cmd *cli.Command, text string) error {
	return &UsageError{fmt.Sprintf("%s; see %q", text, cmd.FullName()+" -h")}
}

// Usagef is Usage with a format.
func Usagef(cmd *cli.Command, format string, values ...any) error {
	return Usage(cmd, fmt.Sprintf(format, values...))
}

// init lets help show flags with one dash, as documents and examples do, and no bound as a default of 0.
func init() {
	library := cli.FlagStringer
	cli.FlagStringer = func(flag cli.Flag) string {
		names, text, _ := strings.Cut(library(flag), "\t")
		return strings.ReplaceAll(names, "--", "-") + "\t" + strings.TrimSuffix(text, " (default: 0)")
	}
}
