// Package term formats text for people at a terminal: colours, tables, sizes, durations, plurals, and foreign
// text that must not control the terminal.
//
// It does not know what it formats: nothing here belongs to events, limits or settings. JSON for scripts is
// written where the data is.
package term

import (
	"io"
	"os"
)

// Screen is how a command may write: with colours, and over what it wrote before, only where a person is
// watching. The zero Screen is plain text.
type Screen struct {
	Terminal bool // the output is a terminal
	Colours  bool // and NO_COLOR is not set (https://no-color.org)
}

// ScreenOf looks at what out is, or the writer behind an Escaper.
func ScreenOf(out io.Writer) Screen {
	file, ok := Unescaped(out).(*os.File)
	if !ok {
		return Screen{}
	}
	info, err := file.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return Screen{Terminal: terminal, Colours: terminal && os.Getenv("NO_COLOR") == ""}
}

// Colour is an ANSI code; the terminal's own palette decides how it looks.
type Colour string

// Colours.
const (
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Bold   Colour = "1"
)

// Paint colours a text, where there are colours.
func (s Screen) Paint(colour Colour, text string) string {
	if !s.Colours {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

// Clear makes what follows replace what is on the screen.
func (s Screen) Clear() string {
	if !s.Terminal {
		return ""
	}
	return "\x1b[H\x1b[2J"
}
