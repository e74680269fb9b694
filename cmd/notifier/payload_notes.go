package main

import (
	"fmt"
	"io"
	"maps"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// payloadNotes names what an event has and a worker would not read, on standard error and each once. An event
// is valid with it: publishers may have fields of their own.
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

// of names what is not read of an event, or not as its author may have meant.
func (n *payloadNotes) of(m event.Message, decoded event.Event) {
	for _, field := range event.Unread(m) {
		n.add(fmt.Sprintf("%q in the payload is not read%s", field.Name, cmdline.DidYouMean(field.Meant)))
	}
	if kind := event.PostedAsText(m); kind != "" {
		n.add(
			"the payload is a JSON " + kind + " and is posted as text; expected plain text, or a JSON object for each event",
		)
	}
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
