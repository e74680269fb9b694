package main

import (
	"io"
	"os"
)

// terminal is how a command may write: with colours, and over what it has written before, only where a person looks on.
type terminal struct {
	person bool // the output is a terminal
	colour bool // and NO_COLOR is not set (https://no-color.org)
}

func terminalOf(out io.Writer) terminal {
	file, ok := out.(*os.File)
	if !ok {
		return terminal{}
	}
	info, err := file.Stat()
	person := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return terminal{person: person, colour: person && os.Getenv("NO_COLOR") == ""}
}

// Colours, as the terminal's own palette has them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// paint colours a text, where there are colours.
func (t terminal) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// home makes what follows replace what is on the screen.
func (t terminal) home() string {
	if !t.person {
		return ""
	}
	return "\x1b[H\x1b[2J"
}
