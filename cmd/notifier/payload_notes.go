package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"

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
	data := withoutMark(m.Data)
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) && !declaresText(m) && json.Valid(data) {
		n.add("the payload is a JSON array and is posted as text; publish one JSON object for each event")
	}
	if source := m.Header[outcome.HeaderSource]; len(source) > 0 && decoded.Source != "" {
		// What a text with the same header has is what the header says.
		header := map[string][]string{outcome.HeaderSource: source}
		text := event.Message{Header: header, Data: []byte("x"), FallbackID: "x"}
		if said, _ := event.Decode(text, event.Rules{MaxBytes: 1}); said.Source != decoded.Source {
			n.add("-source is not read: the payload is a CloudEvent, which has a source of its own")
		}
	}
}

// asText tells how to publish a rejected event as text, if that may be meant: a log line can begin with {.
func asText(m event.Message, rules event.Rules) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(withoutMark(m.Data), &fields) // broken JSON has no fields
	for _, name := range []string{"text", "blocks", "specversion"} {
		if fields[name] != nil {
			return ""
		}
	}
	m.Header = maps.Clone(m.Header)
	m.Header["Content-Type"] = []string{"text/plain"}
	if _, rejection := event.Decode(m, rules); rejection != nil {
		return ""
	}
	return `; to post it as text, add -header "Content-Type: text/plain"`
}

func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\uFEFF")) }

// declaresText reports whether a header says that the payload is text.
func declaresText(m event.Message) bool {
	for name, values := range m.Header {
		if strings.EqualFold(name, "Content-Type") {
			return strings.HasPrefix(strings.ToLower(values[0]), "text/plain")
		}
	}
	return false
}
