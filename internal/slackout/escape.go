package slackout

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxText is how many characters Slack keeps of a message's text.
const maxText = 40_000

// noticeRoom is what the longest notice takes: its words and a number of up to 19 digits.
const noticeRoom = len(" [ more characters cut]") + 1 + 19

// notice says at the end of a cut text how many characters of what the publisher wrote are missing.
func notice(missing int) string { return fmt.Sprintf("… [%d more characters cut]", missing) }

// entity is how a control character of Slack's markup is written, or "" for any other character.
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

// escapeAndCut escapes &, < and >, and nothing else, and keeps the result within limit characters, counted after
// escaping: what does not fit is left off at the end and counted in a notice. The result is valid UTF-8.
// The limit must leave room for the notice.
func escapeAndCut(text string, limit int) string {
	return cutUnits(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		if e := entity(r); e != "" {
			return e, size
		}
		return string(r), size
	})
}

// cutPlain keeps a text that has no markup within limit characters, as escapeAndCut does but without escaping.
func cutPlain(text string, limit int) string {
	return cutUnits(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		return string(r), size
	})
}

// cutMarkup keeps a text of trusted markup within limit characters. An entity or a <link> stays whole or goes.
func cutMarkup(text string, limit int) string {
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

// unitLength is the length in bytes of what starts rest and ends with the character end, or 1 when that does not
// come within most bytes: then its first character stands for itself.
func unitLength(rest string, end byte, most int) int {
	if i := strings.IndexByte(rest[:min(len(rest), most)], end); i > 0 {
		return i + 1
	}
	return 1
}

// cutUnits writes a text unit by unit; next returns how the first unit of the rest is written and how many bytes
// of the rest it is. A unit is never split.
func cutUnits(text string, limit int, next func(rest string) (string, int)) string {
	var (
		out    strings.Builder
		runes  int // written
		keep   int // bytes of out that can stay when a notice must follow
		kept   int // bytes of text that keep stands for
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
