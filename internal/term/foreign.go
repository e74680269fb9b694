package term

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is the one place that knows the unsafe characters of foreign text: those that a terminal obeys
// (control characters, C1 among them), those that reorder their surroundings (bidirectional controls), those
// that begin a line without looking like it (U+2028, U+2029), and invisible ones (zero width, byte-order
// marks). unicode.IsPrint is false for all of them, and for some harmless ones (no-break spaces, joiners),
// which are treated alike. Message is for Slack, which shows joiners and line ends, and removes less.

// maxCell bounds a cell of a table, in bytes.
const maxCell = 100

// Cell is foreign text as a table can show it: printable, at most 100 bytes, "-" for nothing.
func Cell(value string) string {
	if value == "" {
		return "-"
	}
	return Cut(Printable(value), maxCell)
}

// Printable replaces each unsafe character with a question mark. The result is one line of valid UTF-8.
func Printable(value string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, value)
}

// Lines is Printable for each line of a text.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// reorders are the characters that change the order of those that follow: embeddings, overrides and isolates.
// The marks (U+200E, U+200F, U+061C) are not among them: they act on their neighbours alone, and
// right-to-left text needs them.
var reorders = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x202A, Hi: 0x202E, Stride: 1}, {Lo: 0x2066, Hi: 0x2069, Stride: 1}},
}

// sequences matches what programs write to colour a terminal: control sequences (CSI), commands with a text
// (OSC, such as links and titles) and the choice of a character set, which "tput sgr0" writes. Each begins
// with ESC or with its 8-bit form. A command without its end is not one: the rest of the text would be lost.
var sequences = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]" +
	"|(?:\x1b\\]|\u009d)[^\x00-\x1f\x7f-\u009f]*(?:\x07|\x1b\\\\|\u009c)" +
	"|\x1b[()][0-9A-Z]")

// Message is for text that Slack shows. It removes sequences, the characters in reorders, and control
// characters except \t, \n and \r. U+2028 and U+2029 become \n. Right-to-left text needs none of them and is
// unchanged; so are joiners, which emoji and some scripts need. The result is valid UTF-8, each invalid byte
// replaced by U+FFFD.
func Message(text string) string {
	if strings.ContainsAny(text, "\x1b\u009b\u009d") {
		text = sequences.ReplaceAllString(text, "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return r
		case r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.IsControl(r) || unicode.Is(reorders, r):
			return -1
		}
		return r
	}, text)
}

// Escaper returns a writer that writes each unsafe character as JSON does, \u202e, so that JSON stays the
// same data. Each Write must be whole lines. Tabs and \n are not changed.
func Escaper(out io.Writer) io.Writer { return escaper{out} }

type escaper struct{ out io.Writer }

// Unescaped returns the writer behind an Escaper, or out itself. It is for text of our own that moves the
// cursor.
func Unescaped(out io.Writer) io.Writer {
	if e, ok := out.(escaper); ok {
		return e.out
	}
	return out
}

// Write returns len(lines), as io.Writer requires, however long the escaped text is.
func (e escaper) Write(lines []byte) (int, error) {
	if escaped := escape(lines); escaped != nil {
		_, err := e.out.Write(escaped)
		return len(lines), err
	}
	return e.out.Write(lines)
}

// plainWords returns how many bytes at the start of a text are surely printable ASCII, in steps of eight,
// because a worker in a storm writes megabytes. The caller tests the rest.
func plainWords(text []byte) int {
	const each, tops = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(text); n += 8 {
		word := binary.LittleEndian.Uint64(text[n:])
		// A byte below a space or above 0x9f sets its top bit in the first term, 0x7f to 0x9f in the second.
		// A borrow or carry can falsify only the bytes above one that has already set its own bit.
		if ((word-' '*each)|(word+each))&tops != 0 {
			break
		}
	}
	return n
}

// escape returns nil if there is nothing to escape: most lines are plain ASCII.
func escape(lines []byte) []byte {
	var escaped []byte
	copied := 0 // bytes of lines that are already in escaped
	for i := 0; i < len(lines); {
		if plain := plainWords(lines[i:]); plain > 0 {
			i += plain
			continue
		}
		r, size := rune(lines[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(lines[i:])
		}
		broken := r == utf8.RuneError && size == 1
		ascii := r >= ' ' && r < 0x7f || r == '\n' || r == '\t'
		printable := r >= utf8.RuneSelf && unicode.IsPrint(r) && !broken
		if ascii || printable {
			i += size
			continue
		}
		escaped = append(escaped, lines[copied:i]...)
		for _, unit := range utf16.AppendRune(nil, r) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
		i += size
		copied = i
	}
	if escaped == nil {
		return nil
	}
	return append(escaped, lines[copied:]...)
}

// Bytes shows a publisher's data in a terminal, character by character: each invalid byte as \xff, each
// unsafe character as in Go, \x1b or \u202e. Tabs and line ends (\n) are not changed.
func Bytes(data []byte) string {
	var shown strings.Builder
	shown.Grow(len(data))
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&shown, `\x%02x`, data[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			shown.Write(data[:size])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			shown.WriteString(quoted[1 : len(quoted)-1])
		}
		data = data[size:]
	}
	return shown.String()
}

// NewJSON returns an encoder of one value per line, safe for scripts and for terminals.
func NewJSON(out io.Writer) *json.Encoder {
	encoder := json.NewEncoder(Escaper(out))
	encoder.SetEscapeHTML(false) // as the log
	return encoder
}
