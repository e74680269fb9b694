package event_test

import (
	"strings"
	"testing"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// TestDecodeReplies: every form of a stream's answer is recognised, and nothing that is
// more or less than that.
func TestDecodeReplies(t *testing.T) {
	for _, body := range []string{
		`{"stream":"NOTIFY","seq":1}`,
		`{"stream":"NOTIFY", "seq":18446744073709551615}`,
		`{"stream":"NOTIFY","domain":"hub","seq":1}`,
		`{"stream":"ORDERS","seq":1}`,
		`{"stream":"NOTIFY","seq":1,"duplicate": true}`,
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
		`{"stream":"NOTIFY","seq":1,"text":"x"}`:     "",
		`{"stream":"NOTIFY","seq":1,"other":1}`:      outcome.Malformed,
		`{"stream":"NOTIFY","seq":1} {}`:             outcome.Malformed,
		`{"stream":"NOTIFY","seq":1`:                 outcome.Malformed,
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

// reasonOf is why a message is no event that can be sent; empty: it is one.
func reasonOf(t *testing.T, m event.Message) string {
	t.Helper()
	_, rejection := event.Decode(m, event.Rules{Pattern: mustPattern(t, "notify.>"), MaxBytes: maxBytes})
	if rejection == nil {
		return ""
	}
	return rejection.Reason
}

// FuzzDecodeReplies: what is taken for a stream's answer could not be sent either if it were none.
func FuzzDecodeReplies(f *testing.F) {
	for _, body := range []string{
		`{"stream":"NOTIFY","seq":1}`, `{"stream":"NOTIFY","domain":"hub","seq":1,"duplicate": true}`, `{"stream":"NOTIFY","seq":1,"text":"x"}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"NOTIFY","seq":0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := message(string(body))
		if reasonOf(t, m) != outcome.Reply {
			return
		}
		// the server's have no header
		if reason := reasonOf(t, withHeader(m, "Anything", "x")); reason != outcome.Malformed {
			t.Errorf("with a header: reason %q, expected %q", reason, outcome.Malformed)
		}
	})
}
