package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"notifier/internal/suggest"
)

// UnknownCommand says that a command is unknown, and which one may be meant: one of those below cmd, or a
// command of another one by its very name ("replay" for "dead replay").
func UnknownCommand(cmd *cli.Command, word string) string {
	text := fmt.Sprintf("unknown command %q", word)
	for _, below := range visibleCommands(cmd) {
		for _, further := range visibleCommands(below) {
			if word != "" && further.Name == word {
				return text + DidYouMean(further.FullName())
			}
		}
	}
	if name, found := nearest(word, commandNames(cmd)); found {
		return text + DidYouMean(strings.TrimSpace(cmd.FullName()+" "+name))
	}
	return text
}

// unknownFlag is the same for a flag, as the user wrote it: -flag or --flag.
func unknownFlag(cmd *cli.Command, written string) string {
	text, word := "unknown flag "+written, strings.TrimLeft(written, "-")
	if cmd == cmd.Root() {
		for _, name := range commandNames(cmd) {
			if name == word {
				return text + DidYouMean(cmd.FullName()+" "+name)
			}
		}
	}
	var names []string
	for _, flag := range append(cmd.VisibleFlags(), cmd.Root().VisibleFlags()...) {
		names = append(names, flag.Names()...)
	}
	if name, found := nearest(word, names); found {
		return text + DidYouMean("-"+name)
	}
	return text
}

func commandNames(cmd *cli.Command) []string {
	var names []string
	for _, below := range visibleCommands(cmd) {
		names = append(names, below.Name)
	}
	return names
}

// nearest is the name that is most likely meant. Between names of one letter every other one is as near, so
// only the same letter counts there.
func nearest(word string, names []string) (string, bool) {
	var known []string
	for _, name := range names {
		if len(word) > 1 && len(name) > 1 || strings.EqualFold(word, name) {
			known = append(known, name)
		}
	}
	return suggest.Nearest(word, known)
}

// DidYouMean is what stands behind a name that does not exist.
func DidYouMean(name string) string { return fmt.Sprintf(" (did you mean %q?)", name) }
