package event_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

const (
	subject  = "notify.errors"
	fallback = "NOTIFY-17-1795149541123456789"
	maxBytes = 4096
)

func published() time.Time { return time.Date(2026, 11, 20, 4, 39, 1, 123456000, time.UTC) }

func rules(tb testing.TB) event.Rules {
	return event.Rules{
		Pattern:        mustPattern(tb, "notify.>"),
		MaxBytes:       maxBytes,
		ChannelAllowed: func(channel string) bool { return channel == "C0123" || channel == "#deploys" },
		CheckCost: func(category string, cost int) error {
			if cost > maxCost(category) {
				return fmt.Errorf("expected 1 to %d, as the limits allow", maxCost(category))
			}
			return nil
		},
	}
}

// maxCost is the highest cost that the rules take.
func maxCost(category string) int {
	if category == "deploys" {
		return 5
	}
	return 20
}

func message(payload string) event.Message {
	return event.Message{Subject: subject, Data: []byte(payload), FallbackID: fallback, Published: published()}
}

// withHeader returns the message with one more header; names are spelled as they are given.
func withHeader(m event.Message, namesAndValues ...string) event.Message {
	m.Header = map[string][]string{}
	for i := 0; i < len(namesAndValues); i += 2 {
		m.Header[namesAndValues[i]] = append(m.Header[namesAndValues[i]], namesAndValues[i+1])
	}
	return m
}

// plain returns the event decoded from a plain text message, with changes applied.
func plain(text string, change ...func(*event.Event)) event.Event {
	e := event.Event{
		ID: fallback, Category: "errors", Subject: subject, Text: text, Cost: 1,
		Time: published(), Published: published(),
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func withID(id string) func(*event.Event) { return func(e *event.Event) { e.ID = id } }

func causedBy(source string) func(*event.Event) { return func(e *event.Event) { e.Source = source } }

func at(t time.Time) func(*event.Event) { return func(e *event.Event) { e.Time = t } }

// accepted is a table of messages and the events they become.
type accepted map[string]struct {
	message event.Message
	want    event.Event
}

func (table accepted) run(t *testing.T) {
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			got, rejection := event.Decode(tc.message, rules(t))
			if rejection != nil {
				t.Fatalf("rejected: %v", rejection)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

// rejected is a table of messages and why they are refused: as malformed if no other reason is given.
type rejected map[string]struct {
	message event.Message
	detail  string // the whole of it
	reason  string
	id      string // of the event that comes with the rejection; "": the fallback
}

func (table rejected) run(t *testing.T) {
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			got, rejection := event.Decode(tc.message, rules(t))
			want := &event.Rejection{Reason: tc.reason, Detail: tc.detail}
			if tc.reason == "" {
				want.Reason = outcome.Malformed
			}
			if diff := cmp.Diff(want, rejection); diff != "" {
				t.Fatalf("rejection (-want +got):\n%s", diff)
			}
			if tc.id == "" {
				tc.id = fallback
			}
			known := event.Event{ID: tc.id, Category: "errors", Subject: subject, Cost: 1, Published: published()}
			rest := cmpopts.IgnoreFields(event.Event{}, "Text", "Blocks", "ThreadTS", "Cost", "Time", "IDSource", "Source")
			if diff := cmp.Diff(known, got, rest); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeText(t *testing.T) {
	accepted{
		"text":            {message("disk full on db-1"), plain("disk full on db-1")},
		"kept as written": {message("  disk\n full\t\n"), plain("  disk\n full\t\n")},
		"declared plain":  {withHeader(message(`{"text":"y"}`), "Content-Type", "text/plain"), plain(`{"text":"y"}`)},
		"byte-order mark": {message("\uFEFFdisk full"), plain("disk full")},
	}.run(t)
	const empty = "payload is empty, expected text or a JSON object"
	rejected{
		"empty":           {message: message(""), detail: empty},
		"byte-order mark": {message: message("\uFEFF"), detail: empty},
		"invalid UTF-8":   {message: message("disk \xff full"), detail: "payload is not valid UTF-8"},
	}.run(t)
}

func TestDecodeID(t *testing.T) {
	long := strings.Repeat("i", 256)
	accepted{
		"header":                      {withHeader(message("x"), "Nats-Msg-Id", "h-1"), plain("x", withID("h-1"))},
		"payload":                     {message(`{"id":"p-1","text":"x"}`), plain("x", withID("p-1"))},
		"payload when header empty":   {withHeader(message(`{"id":"p-1","text":"x"}`), "Nats-Msg-Id", ""), plain("x", withID("p-1"))},
		"header of another case":      {withHeader(message("x"), "nats-msg-id", "h-1"), plain("x")},
		"id header before the other":  {withHeader(message("x"), "Nats-Msg-Id", "h-1", outcome.HeaderEventID, "e-1"), plain("x", withID("e-1"))},
		"id header of another case":   {withHeader(message("x"), "notifier-event-id", "e-1", "Notifier-event-id", "e-2"), plain("x")},
		"longest id header":           {withHeader(message("x"), outcome.HeaderEventID, long), plain("x", withID(long))},
		"header before CloudEvent id": {withHeader(message("x"), "Nats-Msg-Id", "h-1", "ce-specversion", "1.0", "ce-id", "c-1", "ce-source", "/s", "ce-type", "t"), plain("x", withID("h-1"), causedBy("/s"))},
	}.run(t)
	rejected{
		"payload id too long":      {message: message(`{"id":"` + long + `i","text":"x"}`), detail: "id has 257 bytes, expected at most 256"},
		"control character":        {message: message(`{"id":"a\u001b[2J","text":"x"}`), detail: "id has a control character, expected none"},
		"header id too long":       {message: withHeader(message("x"), "Nats-Msg-Id", long+"i"), detail: "Nats-Msg-Id has 257 bytes, expected at most 256"},
		"id header invalid":        {message: withHeader(message("x"), outcome.HeaderEventID, "a\xff"), detail: "Notifier-Event-Id is not valid UTF-8"},
		"bad id beside the header": {message: withHeader(message("x"), outcome.HeaderEventID, "e-1", "Nats-Msg-Id", "a\tb"), detail: "Nats-Msg-Id has a control character, expected none", id: "e-1"},
		"id known when the rest is wrong": {
			message: message(`{"text":5,"id":"p-1"}`), detail: "text is a number, expected a string", id: "p-1",
		},
	}.run(t)

	m := message("x")
	m.FallbackID = ""
	_, rejection := event.Decode(m, rules(t))
	if rejection == nil || rejection.Reason != outcome.Malformed {
		t.Errorf("an event without any id: %v", rejection)
	}
}

func TestDecodeTooLarge(t *testing.T) {
	const detail = "payload has 4097 bytes, expected at most 4096"
	pad := strings.Repeat("x", maxBytes)
	rejected{
		"header's id":     {message: withHeader(message(pad+"x"), "Nats-Msg-Id", "h-1"), reason: outcome.TooLarge, detail: detail, id: "h-1"},
		"before a bad id": {message: withHeader(message(pad+"x"), "Nats-Msg-Id", "\xff"), reason: outcome.TooLarge, detail: detail},
		"payload's id is not looked at": {
			message: message(`{"id":"p-1","text":"` + pad[:maxBytes-21] + `"}`), reason: outcome.TooLarge, detail: detail,
		},
	}.run(t)

	m := message(pad + "x")
	m.Subject = "other.errors"
	e, rejection := event.Decode(m, rules(t))
	if rejection == nil || rejection.Reason != outcome.TooLarge || e.Category != "" || e.Subject != "other.errors" {
		t.Errorf("too large and of no category: %+v, %v", e, rejection)
	}
}

func TestDecodeCategory(t *testing.T) {
	long := strings.Repeat("c", 128)
	for _, tc := range []struct{ subject, category, detail string }{
		{"notify.errors.db", "errors.db", ""},
		{"notify." + long, long, ""},
		{"notify." + long + "c", "", "category has 129 bytes, expected at most 128"},
		{"notify.a\xff", "", "category is not valid UTF-8"},
		{"notify.a\x1b[2J", "", "category has a control character, expected none"},
		{"notify.>", "", "category has a wildcard (* or >), expected none"},
		{"notify.a.*", "", "category has a wildcard (* or >), expected none"},
		{"notify.a*b", "", "category has a wildcard (* or >), expected none"},
		{"notify", "", "subject does not match notify.>, expected one that does"},
	} {
		// The payload is broken too: a wrong category is reported first, a good one is kept.
		m := withHeader(message("\xff"), "Nats-Msg-Id", "h-1")
		m.Subject = tc.subject
		want := &event.Rejection{Reason: outcome.Malformed, Detail: tc.detail}
		if tc.detail == "" {
			want.Detail = "payload is not valid UTF-8"
		}
		e, rejection := event.Decode(m, rules(t))
		if diff := cmp.Diff(want, rejection); diff != "" {
			t.Errorf("%q: rejection (-want +got):\n%s", tc.subject, diff)
		}
		if e.Category != tc.category || e.Subject != tc.subject || e.ID != "h-1" || !e.Published.Equal(published()) {
			t.Errorf("%q: event %+v, want category %q", tc.subject, e, tc.category)
		}
	}
}

// The worker keeps an Event while the connection may reuse the message's buffer.
func TestDecodeSharesNoMemoryWithTheMessage(t *testing.T) {
	for _, payload := range []string{
		`{"text":"disk full","id":"p-1","blocks":[{"type":"divider"}],"thread_ts":"1234567890.123456","channel":"C0123"}`,
		`{"specversion":"1.0","id":"c-1","source":"/s","type":"t","data":{"text":"disk full","blocks":[{"type":"divider"}]}}`,
	} {
		m := message(payload)
		got, rejection := event.Decode(m, rules(t))
		if rejection != nil {
			t.Fatal(rejection)
		}
		for i := range m.Data {
			m.Data[i] = '#'
		}
		want, _ := event.Decode(message(payload), rules(t))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event changed with the message's bytes (-want +got):\n%s", diff)
		}
	}
}

func TestDetailNeverQuotesThePayload(t *testing.T) {
	const secret = "hunter2"
	for _, payload := range []string{
		`{"text":` + secret, `{"text":"x"}` + secret, `{"text":["` + secret + `"]}`, `{"text":"x","time":"` + secret + `"}`,
		`{"text":"x","thread_ts":"` + secret + `"}`, `{"text":"x","` + secret + `":}`, `{"blocks":["` + secret + `"]}`,
		`{"specversion":"` + secret + `","text":"x"}`,
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"` + secret + `!"}`,
		secret + "\xff",
	} {
		_, rejection := event.Decode(message(payload), rules(t))
		if rejection == nil {
			t.Errorf("%.60s: accepted", payload)
		} else if strings.Contains(rejection.Detail, secret) {
			t.Errorf("%.60s: detail quotes it: %s", payload, rejection.Detail)
		}
	}
}
