package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"notifier/internal/term"
)

// The library's help shows flags with two dashes, and sections that are empty, so the help is written here:
// what a command does, how it is called, an example, its flags. The flag is only named h, because the library
// looks for one named help and would show its own; shortHelp lets users write the long form all the same.
const helpFlag = "h"

// shortHelp writes -help and --help as -h.
func shortHelp(arguments []string) []string {
	short := make([]string, len(arguments))
	for i, argument := range arguments {
		switch argument {
		case "--":
			copy(short[i:], arguments[i:])
			return short
		case "-help", "--help":
			argument = "-" + helpFlag
		}
		short[i] = argument
	}
	return short
}

// WriteHelp writes the help of one command.
func WriteHelp(out io.Writer, cmd *cli.Command) error {
	_, err := fmt.Fprintf(out, "%s - %s\n\nUsage: %s\n\n%s\n", cmd.FullName(), cmd.Usage, usageLine(cmd), cmd.Description)
	if err != nil {
		return err
	}
	if commands := visibleCommands(cmd); len(commands) > 0 {
		table := term.NewTable(out).Indent("   ")
		for _, command := range commands {
			table.Row(command.Name, command.Usage)
		}
		if err := writeSection(out, "Commands", table); err != nil {
			return err
		}
	}
	table := term.NewTable(out).Indent("   ")
	flags := cmd.VisibleFlags()
	if cmd != cmd.Root() {
		flags = append(flags, cmd.Root().VisibleFlags()...)
	}
	for _, flag := range flags {
		name, text := flagLine(flag)
		table.Row(name, text)
	}
	return writeSection(out, "Flags", table)
}

func writeSection(out io.Writer, heading string, table *term.Table) error {
	if _, err := fmt.Fprintf(out, "\n%s:\n", heading); err != nil {
		return err
	}
	return table.Flush()
}

// flagLine is a flag as the help shows it: "-n N" and "publish it N times (default 1)". The word in
// backquotes in its usage stands for its value.
func flagLine(flag cli.Flag) (name, text string) {
	name = "-" + flag.Names()[0]
	documented, ok := flag.(cli.DocGenerationFlag)
	if !ok {
		return name, ""
	}
	text = documented.GetUsage()
	if before, rest, found := strings.Cut(text, "`"); found {
		value, after, _ := strings.Cut(rest, "`")
		name, text = name+" "+value, before+value+after
	}
	if preset := documented.GetValue(); documented.TakesValue() && preset != "" && preset != "0" {
		text += " (default " + preset + ")"
	}
	return name, text
}

// usageLine is how the command is called.
func usageLine(cmd *cli.Command) string {
	line := cmd.FullName()
	if len(visibleCommands(cmd)) > 0 {
		word := " COMMAND"
		if cmd == cmd.Root() {
			word = " [COMMAND]" // without one it is serve
		}
		line += word
	}
	if len(cmd.VisibleFlags()) > 0 {
		line += " [flags]"
	}
	if cmd.ArgsUsage != "" {
		line += " " + cmd.ArgsUsage
	}
	return line
}

// flagError is what the library found wrong with a flag, in our words.
func flagError(cmd *cli.Command, err error) string {
	text := err.Error()
	if name, found := strings.CutPrefix(text, "flag provided but not defined: "); found {
		return unknownFlag(cmd, name)
	}
	if name, found := strings.CutPrefix(text, "flag needs an argument: "); found {
		return "missing value for flag " + name
	}
	for cause, expected := range map[string]string{
		": strconv.ParseInt": "a whole number", ": strconv.ParseFloat": "a number", ": parse error": "true or false",
		": time: invalid duration": "a duration such as 30m", ": time: missing unit": "a duration such as 30m", ": time: unknown unit": "a duration such as 30m",
	} {
		if what, _, found := strings.Cut(text, cause); found {
			return what + ", expected " + expected
		}
	}
	return text
}

// visibleCommands are the commands below one that are not hidden. The library leaves out one that is named
// help.
func visibleCommands(cmd *cli.Command) []*cli.Command {
	var visible []*cli.Command
	for _, below := range cmd.Commands {
		if !below.Hidden {
			visible = append(visible, below)
		}
	}
	return visible
}
