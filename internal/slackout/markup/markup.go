// Package markup makes messages from publishers harmless before they go to Slack.
//
// Text sanitizes the text of a message; Blocks and Attachments sanitize the rest. Afterwards the message
// notifies no one, and no link hides behind other words where Slack reads mrkdwn. Control and bidirectional
// characters are removed, because they change how the surrounding text is shown.
//
// The package understands JSON rather than Block Kit. It knows where Slack reads mrkdwn and which elements
// notify people, and passes everything else on. Slack validates types, fields and sizes itself, and names the
// place of a mistake.
package markup

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"notifier/internal/term"
)

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Escape escapes the three characters that have a meaning in Slack's mrkdwn: &, < and >.
func Escape(text string) string { return escaper.Replace(text) }

// Text returns text without control and bidirectional characters, escaped, and cut to limit characters. The
// characters count as written, so that "&amp;" counts five. limit must be at least
// noticeRoom.
func Text(text string, limit int) string {
	return cut(term.Message(text), limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		return Escape(string(r)), size
	})
}

// Cut cuts trusted mrkdwn to limit characters. It never splits an entity or a <link>.
func Cut(text string, limit int) string {
	return cut(text, limit, func(rest string) (string, int) {
		r, size := utf8.DecodeRuneInString(rest)
		switch r {
		case '&':
			size = unitLength(rest, ';', len("&quot;"))
		case '<':
			size = unitLength(rest, '>', maxLink)
		}
		if size > 1 {
			return strings.ToValidUTF8(rest[:size], "\uFFFD"), size
		}
		return string(r), size
	})
}

// maxLink bounds a <link> in trusted text, in bytes. A longer one may be cut in the middle.
const maxLink = 4096

// unitLength returns the length in bytes of the unit at the start of rest that ends with end. It returns 1 if
// there is no end within max bytes.
func unitLength(rest string, end byte, max int) int {
	if i := strings.IndexByte(rest[:min(len(rest), max)], end); i > 0 {
		return i + 1
	}
	return 1
}

const (
	fence = "```"

	// noticeRoom is the length of the longest notice: its words, a count of up to 19 digits, and the fence that
	// a cut may have to close.
	noticeRoom = len("\n"+fence+" [ more characters cut]") + 1 + 19
)

// cut copies text unit by unit. next returns the output for the next unit and the number of input bytes that it
// consumes. A unit is never split. A text that does not fit ends with the count of the publisher's
// characters that are missing.
func cut(text string, limit int, next func(rest string) (string, int)) string {
	var (
		out     strings.Builder
		written int // characters in out
		keep    int // bytes of out that leave room for the notice
		kept    int // bytes of text that correspond to keep
	)
	for at := 0; at < len(text); {
		unit, size := next(text[at:])
		written += utf8.RuneCountInString(unit)
		if written > limit {
			return closeFence(out.String()[:keep]) + notice(utf8.RuneCountInString(text[kept:]))
		}
		out.WriteString(unit)
		at += size
		if written <= limit-noticeRoom {
			keep, kept = out.Len(), at
		}
	}
	return out.String()
}

func notice(missing int) string { return fmt.Sprintf("… [%d more characters cut]", missing) }

// closeFence closes a code block that a cut has left open. Slack would show the notice as code otherwise.
func closeFence(text string) string {
	if strings.Count(text, fence)%2 == 1 {
		return text + "\n" + fence
	}
	return text
}
