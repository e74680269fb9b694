package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"notifier/internal/term/suggest"
)

// UsageError is a command line that cannot be carried out.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Usage shows how the command is called, in a line of the library's help, and returns the error.
func Usage(cmd *cli.Command, text string) error {
	cli.HelpPrinter(cmd.Root().ErrWriter, "Usage: {{template \"usageTemplate\" .}}\n", cmd)
	return &UsageError{fmt.Sprintf("%s; see %q", text, cmd.FullName()+" -h")}
}

// Usagef is Usage with a text from a format.
func Usagef(cmd *cli.Command, format string, values ...any) error {
	return Usage(cmd, fmt.Sprintf(format, values...))
}

// NoArguments rejects arguments, which a command would otherwise ignore.
func NoArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return Usagef(cmd, "unexpected argument %q", cmd.Args().First())
	}
	return nil
}

// UnknownCommand says that there is no such command below cmd, which one may be meant and, below the root,
// which ones there are and how the first is called.
func UnknownCommand(cmd *cli.Command, word string) string {
	var names []string
	for _, below := range cmd.VisibleCommands() {
		names = append(names, below.Name)
	}
	meant := nearest(word, names, cmd.FullName()+" ")
	text := fmt.Sprintf("unknown command %q", word) + meant
	if cmd == cmd.Root() || len(names) == 0 {
		return text
	}
	text += ", expected " + strings.Join(names, ", ")
	if meant == "" {
		first := cmd.VisibleCommands()[0]
		text += ", such as: " + strings.TrimSpace(cmd.FullName()+" "+first.Name+" "+first.ArgsUsage)
	}
	return text
}

// flagError rewords the library's error: it suggests a similar flag, or states the expected value instead of
// quoting Go's standard library.
func flagError(cmd *cli.Command, err error) string {
	text := err.Error()
	if word, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		var names []string
		for _, flag := range cmd.VisibleFlags() {
			names = append(names, flag.Names()...)
		}
		for _, below := range cmd.VisibleCommands() { // "mute errors -for 2h" lacks the add
			if cmd != cmd.Root() && hasFlag(below, word) {
				return fmt.Sprintf("%s; it belongs to %q", text, cmd.FullName()+" "+below.Name)
			}
		}
		return text + nearest(word, names, "-")
	}
	for cause, expected := range map[string]string{
		": strconv.ParseInt": "a whole number", ": strconv.ParseFloat": "a number",
		": parse error": "true or false", ": time: ": "a duration in h, m, s or ms, such as 30m",
	} {
		if what, _, found := strings.Cut(text, cause); found {
			return what + ", expected " + expected
		}
	}
	return text
}

func hasFlag(cmd *cli.Command, name string) bool {
	return slices.ContainsFunc(
		cmd.Flags,
		func(flag cli.Flag) bool { return slices.Contains(flag.Names(), name) },
	)
}

// nearest suggests the name that is most likely meant, if there is one. The library's own suggestion is the
// name that differs least, however much that is: for "mute errors" it is "mute end". Between names of one
// letter all are as near.
func nearest(word string, names []string, before string) string {
	if name, found := suggest.Nearest(word, names); found && len(word) > 1 {
		return DidYouMean(before + name)
	}
	return ""
}

// DidYouMean returns the suggestion to append to an error about an unknown name.
func DidYouMean(name string) string { return fmt.Sprintf(" (did you mean %q?)", name) }
