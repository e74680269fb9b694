package event_test

import (
	"fmt"
	"strings"
	"testing"

	"notifier/internal/event"
)

// BenchmarkDecode has one event of about a hundred bytes of text in each form.
func BenchmarkDecode(b *testing.B) {
	text := strings.Repeat("disk full ", 10)
	object := fmt.Sprintf(`{"id":"disk-1","text":%q,"cost":1}`, text)
	blocks := fmt.Sprintf(`{"id":"disk-1","text":%q,"blocks":[{"type":"section","text":{"type":"mrkdwn","text":%q}},{"type":"divider"}]}`, text, text)
	for _, bc := range []struct {
		name    string
		message event.Message
	}{
		{"text", message(text)},
		{"text-with-id", withHeader(message(text), "Nats-Msg-Id", "disk-1")},
		{"json", message(object)},
		{"json-blocks", message(blocks)},
		{"cloudevents-structured", structured(`,"time":"2026-11-20T12:00:00Z","data":` + object)},
		{"cloudevents-binary", binary(object, "ce-time", "2026-11-20T12:00:00Z")},
	} {
		b.Run(bc.name, func(b *testing.B) {
			r := rules(b)
			if _, rejection := event.Decode(bc.message, r); rejection != nil {
				b.Fatal(rejection)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(bc.message.Data)))
			for b.Loop() {
				event.Decode(bc.message, r)
			}
		})
	}
}
