package event

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/redact"
)

const (
	maxSourceBytes = 128  // of Event.Source
	readOfSource   = 1024 // bytes of a source that are looked at; the rest costs nothing
)

// setHeaderSource takes the source from the headers, so that messages rejected before decoding have one too.
// A binary CloudEvent's source takes precedence over Notifier-Source.
func (d *decoding) setHeaderSource(header map[string][]string) {
	if len(header) == 0 {
		return
	}
	if _, binary := headerValue(header, "ce-specversion"); binary {
		if value, _ := headerValue(header, "ce-source"); value != "" {
			// Encoded, a character takes three bytes at most for each of its own.
			beginning, whole := beginningOf(value, 3*readOfSource)
			d.Source = normalSource(decodeHeaderValue(beginning), whole)
		}
	}
	if d.Source == "" {
		d.Source = SourceIn(header)
	}
}

// SourceIn returns the Notifier-Source header in the form of Event.Source. It returns "" if the header is
// missing.
func SourceIn(header map[string][]string) string {
	value, _ := headerValue(header, outcome.HeaderSource)
	if value == "" {
		return ""
	}
	return ShownSource(value)
}

// ShownSource is a whole source, such as a CloudEvent's, as Event.Source has it.
func ShownSource(raw string) string { return normalSource(raw, true) }

// normalSource normalises a publisher's source for logs, counters and output: one line of at most 128 bytes
// of UTF-8, without likely secrets (redact.Source). Unprintable characters become U+FFFD. It returns "" if
// nothing is left.
//
// It truncates the source twice: to readOfSource before redacting, and to the final length after. If it
// truncated to the final length first, the beginning of a password could lose the @ that marks it.
//
// The result is no identity: two sources can look the same afterwards.
func normalSource(raw string, whole bool) string {
	beginning, uncut := beginningOf(raw, readOfSource)
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, beginning)
	shown, _ := beginningOf(strings.TrimSpace(redact.Source(printable, whole && uncut)), maxSourceBytes)
	return strings.Clone(strings.TrimSpace(shown)) // the rest of a large payload would stay in memory
}

// beginningOf is the first bytes of a text, up to a whole character, and whether that is all of it.
func beginningOf(text string, most int) (beginning string, whole bool) {
	if len(text) <= most {
		return text, true
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], false
}
