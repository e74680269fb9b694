package letters

import (
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// With a Status header from its publisher, an empty letter would look like a status message of the server. A
// header of the server's, such as Nats-Rollup, could wipe the dead-letter stream. nats.go refuses to publish
// names that clients in other languages can store.
func TestLetterDropsHarmfulHeaders(t *testing.T) {
	dead := &result.Result{
		Event: event.Event{Category: "errors"}, Outcome: outcome.Dead, Reason: outcome.Malformed,
		Delivery: &feed.Delivery{Message: event.Message{Subject: "notify.errors", Header: nats.Header{
			"Status": {"404"}, "status": {"408"}, "Description": {"No Messages"}, "X-Trace": {"one"},
			"Nats-Rollup": {"all"}, "Nats-TTL": {"1s"}, "Not a name": {"x"},
		}}},
	}
	letter := Write("notify-dead", "NOTIFY_DEAD", dead, 0)
	for _, name := range []string{"Status", "status", "Description", "Nats-Rollup", "Nats-TTL", "Not a name"} {
		if values, found := letter.Header[name]; found {
			t.Errorf("the letter has %s: %q", name, values)
		}
	}
	if letter.Header.Get("X-Trace") != "one" || letter.Header.Get(outcome.HeaderReason) != outcome.Malformed {
		t.Errorf("headers %v, expected the publisher's X-Trace and notifier's own", letter.Header)
	}
}

// A large event keeps only the start of its payload, to leave room for other letters. A malformed one keeps
// all of it.
func TestLetterOfALargePayload(t *testing.T) {
	payload := make([]byte, 6000)
	for _, test := range []struct {
		reason    string
		data      []byte
		whole     int // length of a payload that the feed has cut
		kept      int
		shortened string
	}{
		{outcome.TooLarge, payload, 0, event.KeptOfTooLarge, "6000"},
		{outcome.TooLarge, payload[:event.KeptOfTooLarge], 9000, event.KeptOfTooLarge, "9000"},
		{outcome.Malformed, payload, 0, 6000, ""},
	} {
		letter := Write("notify-dead", "NOTIFY_DEAD", &result.Result{
			Event: event.Event{Category: "errors"}, Outcome: outcome.Dead, Reason: test.reason,
			Delivery: &feed.Delivery{Message: event.Message{Data: test.data, DataBytes: test.whole}},
		}, 0)
		shortened := letter.Header.Get(outcome.HeaderShortened)
		if len(letter.Data) != test.kept || shortened != test.shortened {
			t.Errorf("%s: %d bytes of %q, expected %d of %q",
				test.reason, len(letter.Data), shortened, test.kept, test.shortened)
		}
	}
}
