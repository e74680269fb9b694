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

// setHeaderSource takes the source from the headers, so that what is never decoded has one too. That of a
// CloudEvent in binary mode goes before Notifier-Source.
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

// SourceIn is what the Notifier-Source header says, as Event.Source has it; empty: nothing.
func SourceIn(header map[string][]string) string {
	value, _ := headerValue(header, outcome.HeaderSource)
	if value == "" {
		return ""
	}
	return ShownSource(value)
}

// ShownSource is a whole source, such as a CloudEvent's, as Event.Source has it.
func ShownSource(raw string) string { return normalSource(raw, true) }

// normalSource is a publisher's word for who has caused an event as it is logged, counted and shown: one line
// of at most 128 bytes of UTF-8, without what may be a secret (redact.Source). What cannot be printed becomes
// U+FFFD. It is empty if nothing is left.
//
// It is cut to what is looked at, then redacted, then cut to what is shown. Cut the other way round, the
// beginning of a password could stay without the @ by which it is known.
//
// It is no identity: two sources can look the same afterwards.
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
