package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
)

// payloadNotes names what a payload has and a worker would not read, on standard error and each once. A payload is valid with
// it: publishers may have fields of their own.
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

// unread names the fields that are not read where another one is likely meant.
func (n *payloadNotes) unread(m event.Message) {
	for _, field := range event.Unread(m) {
		n.add(fmt.Sprintf("%q in the payload is not read%s", field.Name, cmdline.DidYouMean(field.Meant)))
	}
}

// asText names JSON that is posted as text.
func (n *payloadNotes) asText(payload []byte) {
	payload = bytes.TrimSpace(bytes.TrimPrefix(payload, []byte("\uFEFF")))
	if len(payload) == 0 || payload[0] != '[' && payload[0] != '{' || !json.Valid(payload) {
		return
	}
	if payload[0] == '{' {
		n.add("the payload is a JSON object and is posted as text; -json reads its fields")
		return
	}
	n.add("the payload is a JSON array and is posted as text; publish one JSON object for each event")
}

// subjectOf is the subject of a category. A category that is a whole subject is most likely a mistake.
func subjectOf(pattern event.Pattern, category string) (string, error) {
	if meant, found := pattern.Repeated(category); found {
		return "", fmt.Errorf("category %q repeats the prefix of NATS_SUBJECT %q%s", category, pattern, cmdline.DidYouMean(meant))
	}
	return pattern.Subject(category)
}
