package markup

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"notifier/internal/term"
)

// longestMarkup bounds one link in a text, in bytes: its URL, its words and what is around them.
const longestMarkup = 4096

// markdownLink is [words](URL), without anything in the words that Markdown could read in another way.
var markdownLink = regexp.MustCompile("^\\[([^][<>\\\\`\\n\\r]+)\\]\\(([^()\\s]+)\\)")

// Text is a text in Slack's markup that has no effect beyond being shown: &, < and > are escaped, except
// around links to these hosts, and what would reorder the text is removed. The result is valid UTF-8 of at
// most limit characters, which must leave room for the notice that ends a text that was cut.
func (h Hosts) Text(text string, limit int) string {
	return cutUnits(term.Message(text), limit, func(rest string) (string, int) {
		if rest[0] == '<' {
			if unit, size := h.mrkdwnLink(rest); size > 0 {
				return unit, size
			}
		}
		return escapedRune(rest)
	})
}

// mrkdwnLink returns the link <URL|words> or <URL> at the start of rest if it goes to one of these hosts, and
// its length in bytes in rest; else 0.
func (h Hosts) mrkdwnLink(rest string) (string, int) {
	size := unitLength(rest, '>', longestMarkup)
	if len(h) == 0 || size == 1 {
		return "", 0
	}
	raw, words, hasWords := strings.Cut(rest[1:size-1], "|")
	if l, err := parseLink(raw); err != nil || !h.match(l.host) || strings.ContainsAny(words, "<\n\r") {
		return "", 0
	}
	unit := Escape(raw)
	if hasWords {
		unit += "|" + Escape(words)
	}
	return "<" + unit + ">", size
}

// markdown is Text for Markdown, where a link is [words](URL): each other [ is escaped, so that no label can
// hide another URL.
func (h Hosts) markdown(text string, limit int) string {
	escaped := false // whether the next character follows an effective backslash
	return cutUnits(term.Message(text), limit, func(rest string) (string, int) {
		was := escaped
		escaped = rest[0] == '\\' && !was
		if rest[0] == '[' && !was {
			if unit, size := h.markdownLink(rest); size > 0 {
				return unit, size
			}
			return `\[`, 1
		}
		return escapedRune(rest)
	})
}

// markdownLink is mrkdwnLink for Markdown.
func (h Hosts) markdownLink(rest string) (string, int) {
	if len(h) == 0 {
		return "", 0
	}
	found := markdownLink.FindStringSubmatch(rest[:min(len(rest), longestMarkup)])
	if found == nil {
		return "", 0
	}
	if l, err := parseLink(found[2]); err != nil || !h.match(l.host) {
		return "", 0
	}
	return Escape(found[0]), len(found[0])
}

// escapedRune returns the first character of rest as a unit for cutUnits, escaped.
func escapedRune(rest string) (string, int) {
	r, size := utf8.DecodeRuneInString(rest)
	if e := entity(r); e != "" {
		return e, size
	}
	return string(r), size
}

// Escape escapes &, < and >, and nothing else. The result is valid UTF-8.
func Escape(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		unit, size := escapedRune(text)
		out.WriteString(unit)
		text = text[size:]
	}
	return out.String()
}
