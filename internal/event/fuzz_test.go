package event_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/term"
)

// FuzzDecode feeds Decode with any payload, subject and headers, and checks its guarantees.
func FuzzDecode(f *testing.F) {
	object := `{"id":"p-1","text":"x","blocks":[{"type":"section","text":{"type":"mrkdwn","text":"*x*"}}],"channel":"#deploys","cost":2}`
	for _, m := range []event.Message{message(object), structured(`,"data":` + object), structured(`,"data":"x"`), structured(`,"data_base64":"eA=="`)} {
		f.Add(m.Data, "notify.errors", "", "", "", "")
		f.Add(m.Data, "notify.errors.db", "", "h-1", structuredType, "")
		f.Add(m.Data, "notify.errors", "", "", "application/json", "Euro%20%E2%82%AC")
	}
	f.Add([]byte("disk full"), "notify.errors", "e-1", "", "text/plain", `"a\"b%20"`)
	f.Add([]byte(`{"text":"x","channel":"C9","cost":2,"thread_ts":"1234567890.123456","time":"2026-11-20T04:39:01Z"}`), "notify.a", "", "", "", "")
	f.Add([]byte(`{"text":"x"} y`), "notify", "", "h", "", "")
	f.Add([]byte("{\"text\":\"\xff"), "notify.\xff", "", "\xff", "application/cloudevents-batch+json", "%FF")
	r := rules(f)
	f.Fuzz(func(t *testing.T, data []byte, subject, eventID, messageID, contentType, cloudEventID string) {
		m := event.Message{Subject: subject, Data: data, FallbackID: fallback, Published: published(), Header: map[string][]string{}}
		for name, value := range map[string]string{outcome.HeaderEventID: eventID, "Nats-Msg-Id": messageID, "Content-Type": contentType, "ce-id": cloudEventID} {
			if value != "" {
				m.Header[name] = []string{value}
			}
		}
		if cloudEventID != "" {
			m.Header["ce-specversion"], m.Header["ce-source"], m.Header["ce-type"] = []string{"1.0"}, []string{"/s"}, []string{"t"}
		}
		e, rejection := event.Decode(m, r)
		checkKnown(t, m, e)
		if rejection != nil {
			checkRejection(t, rejection, data)
		} else {
			checkEvent(t, e, r)
		}
		again, same := event.Decode(m, r)
		if diff := cmp.Diff(e, again) + cmp.Diff(rejection, same); diff != "" {
			t.Errorf("decoded twice (-first +second):\n%s", diff)
		}
	})
}

// checkKnown checks the guarantees for every event, rejected or not.
func checkKnown(t *testing.T, m event.Message, e event.Event) {
	t.Helper()
	if e.Subject != m.Subject || !e.Published.Equal(m.Published) {
		t.Errorf("subject %q published %v", e.Subject, e.Published)
	}
	if e.ID == "" || len(e.ID) > 256 || !utf8.ValidString(e.ID) {
		t.Errorf("id %q", e.ID)
	}
	if len(e.Category) > 128 || !utf8.ValidString(e.Category) {
		t.Errorf("category %q", e.Category)
	}
	if e.Cost < 1 {
		t.Errorf("cost %d", e.Cost)
	}
}

// checkEvent checks the guarantees for an event that was not rejected.
func checkEvent(t *testing.T, e event.Event, r event.Rules) {
	t.Helper()
	if e.Category == "" || e.Category != strings.TrimPrefix(e.Subject, "notify.") {
		t.Errorf("category %q of %q", e.Category, e.Subject)
	}
	if e.Cost > maxCost(e.Category) {
		t.Errorf("cost %d", e.Cost)
	}
	visible := strings.ContainsFunc(term.Message(e.Text), func(r rune) bool { return !unicode.IsSpace(r) })
	if !utf8.ValidString(e.Text) || !visible && (e.Text != "" || e.Blocks == nil && e.Attachments == nil) {
		t.Errorf("text %q with blocks %q and attachments %q", e.Text, e.Blocks, e.Attachments)
	}
	if e.Channel != "" && !r.ChannelAllowed(e.Channel) {
		t.Errorf("channel %q", e.Channel)
	}
	if e.ThreadTS != "" && (len(e.ThreadTS) != 17 || e.ThreadTS[10] != '.') {
		t.Errorf("thread_ts %q", e.ThreadTS)
	}
	if y := e.Time.Year(); y < 1970 || y > 9999 {
		t.Errorf("time %v", e.Time)
	}
	for _, list := range []json.RawMessage{e.Blocks, e.Attachments} {
		var objects []map[string]any
		if list == nil {
			continue
		}
		if err := json.Unmarshal(list, &objects); err != nil || len(objects) < 1 {
			t.Fatalf("%d objects, %v: %s", len(objects), err, list)
		}
		if e.Blocks != nil && len(objects) > 50 && &list[0] == &e.Blocks[0] {
			t.Errorf("%d blocks", len(objects))
		}
	}
}

// checkRejection checks that a rejection can be logged.
func checkRejection(t *testing.T, rejection *event.Rejection, payload []byte) {
	t.Helper()
	if !slices.Contains([]string{outcome.Malformed, outcome.TooLarge, outcome.Unroutable}, rejection.Reason) {
		t.Errorf("reason %q", rejection.Reason)
	}
	if rejection.Detail == "" || len(rejection.Detail) > 500 || !utf8.ValidString(rejection.Detail) {
		t.Errorf("detail of %d bytes: %q", len(rejection.Detail), rejection.Detail)
	}
	// No stretch of the payload longer than a channel's name is quoted, be it as it stands there or decoded.
	texts := []string{string(payload)}
	var fields map[string]any
	if json.Unmarshal(payload, &fields) == nil {
		for _, value := range fields {
			if text, ok := value.(string); ok {
				texts = append(texts, text)
			}
		}
	}
	for _, text := range texts {
		for i := range len(rejection.Detail) - 80 {
			if stretch := rejection.Detail[i : i+81]; strings.Contains(text, stretch) {
				t.Fatalf("detail quotes %q", stretch)
			}
		}
	}
}
