// Package term formats text for people at a terminal: colours, tables, sizes, durations, plurals, and foreign
// text that must not control the terminal.
//
// It knows nothing of events, limits or settings. The packages that own the data write JSON for scripts.
package term

import (
	"io"
	"os"
)

// Screen describes an output: whether a command may use colours and overwrite its earlier output. The zero
// Screen is plain text.
type Screen struct {
	Terminal bool // the output is a terminal
	Colours  bool // and NO_COLOR is not set (https://no-color.org)
}

// ScreenOf inspects out, or the writer behind an Escaper.
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
	Yellow Colour = "33"
)

// Paint colours a text, where there are colours.
func (s Screen) Paint(colour Colour, text string) string {
	if !s.Colours {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

// Clear returns the sequence that clears the screen.
func (s Screen) Clear() string {
	if !s.Terminal {
		return ""
	}
	return "\x1b[H\x1b[2J"
}
