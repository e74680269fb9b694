package letters

import (
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// With a Status header from its publisher, an empty letter would look like a status message of the server.
func TestLetterDropsStatusHeaders(t *testing.T) {
	dead := &result.Result{
		Event: event.Event{Category: "errors"}, Outcome: outcome.Dead, Reason: outcome.Malformed,
		Delivery: &feed.Delivery{Message: event.Message{Subject: "notify.errors", Header: nats.Header{
			"Status": {"404"}, "status": {"408"}, "Description": {"No Messages"}, "X-Trace": {"one"},
		}}},
	}
	letter := Write("notify-dead", dead, 0)
	for _, name := range []string{"Status", "status", "Description"} {
		if values, found := letter.Header[name]; found {
			t.Errorf("the letter has %s: %q", name, values)
		}
	}
	if letter.Header.Get("X-Trace") != "one" || letter.Header.Get(outcome.HeaderReason) != outcome.Malformed {
		t.Errorf("headers %v, expected the publisher's X-Trace and notifier's own", letter.Header)
	}
}
