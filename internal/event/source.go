package event

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/redact"
	"notifier/internal/term"
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
	if _, binary := HeaderValue(header, "ce-specversion"); binary {
		if value, _ := HeaderValue(header, "ce-source"); value != "" {
			// Encoded, each byte takes three at most.
			d.Source = ShownSource(decodeHeaderValue(value[:min(len(value), 3*readOfSource+3)]))
		}
	}
	if d.Source == "" {
		d.Source = SourceIn(header)
	}
}

// SourceIn returns the Notifier-Source header in the form of Event.Source. It returns "" if the header is
// missing.
func SourceIn(header map[string][]string) string {
	value, _ := HeaderValue(header, outcome.HeaderSource)
	if value == "" {
		return ""
	}
	return ShownSource(value)
}

// ShownSource normalises a publisher's source for logs, counters and output: one line of at most 128 bytes of
// UTF-8, without the users and passwords of URLs. Unprintable characters become U+FFFD. It returns "" if
// nothing is left.
//
// The result is no identity: two sources can look the same afterwards.
func ShownSource(raw string) string {
	redacted := redact.Text
	if len(raw) > readOfSource {
		raw, redacted = raw[:readOfSource], redact.Beginning
	}
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, raw)
	shown := term.Cut(strings.TrimSpace(redacted(printable)), maxSourceBytes)
	return strings.Clone(shown) // the rest of a large payload would stay in memory
}
