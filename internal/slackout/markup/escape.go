package markup

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// noticeRoom is the length in characters of the longest notice: its words and a number of up to 19 digits.
const noticeRoom = len(" [ more characters cut]") + 1 + 19

// notice ends a cut text: how many characters of what the publisher wrote are missing.
func notice(missing int) string { return fmt.Sprintf("… [%d more characters cut]", missing) }

// entity returns the escaped form of a control character of Slack's markup, or "" for any other character.
func entity(r rune) string {
	switch r {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	}
	return ""
}

// cutPlain keeps a text without markup within limit characters: what does not fit is cut off at the end and
// counted in a notice. The result is valid UTF-8. The limit must leave room for the notice.
func cutPlain(text string, limit int) string {
	return cutUnits(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		return string(r), size
	})
}

// CutTrusted keeps a text with trusted markup within limit characters. An entity or a <link> is kept whole or
// cut off.
func CutTrusted(text string, limit int) string {
	return cutUnits(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		switch r {
		case '&':
			size = unitLength(rest, ';', len("&quot;"))
		case '<':
			size = unitLength(rest, '>', 4096)
		}
		if size > 1 {
			return strings.ToValidUTF8(rest[:size], "\uFFFD"), size
		}
		return string(r), size
	})
}

// unitLength returns the length in bytes of the unit at the start of rest that ends with the character end,
// or 1 if end does not follow within most bytes: then the first character is an ordinary one.
func unitLength(rest string, end byte, most int) int {
	if i := strings.IndexByte(rest[:min(len(rest), most)], end); i > 0 {
		return i + 1
	}
	return 1
}

// cutUnits copies a text unit by unit; next returns how to write the first unit of the rest and its length in
// bytes in the rest. A unit is never split.
func cutUnits(text string, limit int, next func(rest string) (string, int)) string {
	var (
		out    strings.Builder
		runes  int // written
		keep   int // bytes of out that can be kept if a notice has to follow
		kept   int // bytes of text that correspond to keep
		budget = limit - noticeRoom
	)
	for at := 0; at < len(text); {
		unit, size := next(text[at:])
		runes += utf8.RuneCountInString(unit)
		if runes > limit {
			return out.String()[:keep] + notice(utf8.RuneCountInString(text[kept:]))
		}
		out.WriteString(unit)
		at += size
		if runes <= budget {
			keep, kept = out.Len(), at
		}
	}
	return out.String()
}
