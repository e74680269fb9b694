package main

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/term"
)

// payloadNotes writes notes about payloads to standard error, each once. An event is valid with them.
type payloadNotes struct {
	out   io.Writer
	named map[string]bool
}

func (n *payloadNotes) add(text string) {
	if n.named[text] {
		return
	}
	if n.named == nil {
		n.named = map[string]bool{}
	}
	n.named[text] = true
	_, _ = fmt.Fprintf(n.out, "notifier: %s\n", text)
}

// unread names the fields of a payload that are not read.
func (n *payloadNotes) unread(m event.Message) {
	if fields := event.Unread(m); len(fields) > 0 {
		n.add("nobody reads these fields of the payload: " + term.Printable(strings.Join(fields, ", ")))
	}
}

// source reports that a CloudEvent's own source takes precedence over the flag.
func (n *payloadNotes) source(m event.Message, decoded event.Event) {
	_, set := m.Header[outcome.HeaderSource]
	if set && decoded.Source != "" && decoded.Source != event.SourceIn(m.Header) {
		n.add("-source is not read: the payload is a CloudEvent, which has a source of its own")
	}
}

// asText suggests publishing a rejected event as text, where its author may have meant that: a log line can
// begin with {.
func asText(m event.Message, rules event.Rules) string {
	if event.LooksLikeEvent(m) {
		return ""
	}
	m.Header = maps.Clone(m.Header)
	m.Header["Content-Type"] = []string{"text/plain"}
	if _, rejection := event.Decode(m, rules); rejection != nil {
		return ""
	}
	return `; to post it as text, add -header "Content-Type: text/plain"`
}
