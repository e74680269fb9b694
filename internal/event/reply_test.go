package event_test

import (
	"strings"
	"testing"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// TestDecodeReplies: Decode recognises every form of a stream's reply, and no near miss.
func TestDecodeReplies(t *testing.T) {
	for _, body := range []string{
		`{"stream":"NOTIFY","seq":1}`,
		`{"stream":"NOTIFY", "seq":18446744073709551615}`,
		`{"stream":"NOTIFY","seq":7,"domain":"hub","duplicate":true,"val":"12","batch":"b","count":3}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7 \u003c\"x\"\u003e"},"stream":"NOTIFY","seq":0}`,
	} {
		for _, to := range []string{"notify.errors", "notify." + strings.Repeat("x", 200)} {
			m := message(body)
			m.Subject = to
			if reason := reasonOf(t, m); reason != outcome.Reply {
				t.Errorf("%s to %.20s: reason %q, expected %q", body, to, reason, outcome.Reply)
			}
		}
		if reason := reasonOf(t, withHeader(message(body), "Content-Type", "text/plain")); reason != "" {
			t.Errorf("%s as a text: reason %q, expected an event", body, reason)
		}
	}
	for body, want := range map[string]string{
		`{"stream":"NOTIFY"}`:                        outcome.Malformed,
		`{"stream":"NOTIFY","seq":"1"}`:              outcome.Malformed,
		`{"stream":"NOTIFY","seq":1,"other":1}`:      outcome.Malformed,
		`{"stream":"NOTIFY","seq":1} {}`:             outcome.Malformed,
		`{"text":"x","stream":"NOTIFY","seq":1}`:     "",
		`{"error":"disk full","text":"x"}`:           "",
		`"{\"stream\":\"NOTIFY\",\"seq\":1}" is it`:  "",
		`{"error":{"code":1},"seq":1,"stream":null}`: outcome.Malformed,
	} {
		if reason := reasonOf(t, message(body)); reason != want {
			t.Errorf("%s: reason %q, expected %q", body, reason, want)
		}
	}
}

// reasonOf returns the reason for the rejection of a message, or "".
func reasonOf(t *testing.T, m event.Message) string {
	t.Helper()
	_, rejection := event.Decode(m, event.Rules{Pattern: mustPattern(t, "notify.>"), MaxBytes: maxBytes})
	if rejection == nil {
		return ""
	}
	return rejection.Reason
}

// TestDecodeServerMessages: a publisher's message that resembles a message of the server remains an event.
func TestDecodeServerMessages(t *testing.T) {
	apiReply := `{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"config":{"name":"NOTIFY"}}`
	for _, c := range []struct{ name, body, header, value, reason string }{
		{"delete marker", "", "Nats-Marker-Reason", "MaxAge", outcome.Reply},
		{"marker with a payload", "disk full", "Nats-Marker-Reason", "MaxAge", ""},
		{"marker in other letters", "", "nats-marker-reason", "MaxAge", outcome.Malformed},
		{"end of a request", "", "Nats-Pending-Messages", "1", outcome.Reply},
		{"reply of the API", apiReply, "Nats-Required-Api-Level", "1", outcome.Reply},
		{"advisory", `{"type":"io.nats.jetstream.advisory.v1.max_deliver","id":"x"}`, "Other", "x", outcome.Reply},
		{"event that looks like a reply", `{"type":"io.nats.jetstream","text":"disk full"}`, "Other", "x", ""},
		{"reply as a text", apiReply, "Content-Type", "text/plain", ""},
		{"CloudEvent of a type of ours", `{"type":"io.nats.x","specversion":"1.0","id":"1","source":"s","data":"hello"}`,
			"Other", "x", ""},
		{"scheduled event", "backup is due", "Nats-Scheduler", "schedules.backup", ""},
	} {
		if reason := reasonOf(t, withHeader(message(c.body), c.header, c.value)); reason != c.reason {
			t.Errorf("%s: reason %q, expected %q", c.name, reason, c.reason)
		}
	}
}

// FuzzDecodeReplies checks that a payload which is dropped as the server's could not be sent either: behind a
// space it is the same JSON, and no longer the server's.
func FuzzDecodeReplies(f *testing.F) {
	for _, body := range []string{
		`{"stream":"NOTIFY","seq":1}`, `{"stream":"NOTIFY","domain":"hub","seq":1,"duplicate": true}`, `{"stream":"NOTIFY","seq":1,"text":"x"}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"NOTIFY","seq":0}`,
		`{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0}`, `{"type":"io.nats.x","specversion":"1.0"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if reasonOf(t, message(string(body))) != outcome.Reply {
			return
		}
		if reason := reasonOf(t, message(" "+string(body))); reason != outcome.Malformed {
			t.Errorf("behind a space: reason %q, expected %q", reason, outcome.Malformed)
		}
	})
}
