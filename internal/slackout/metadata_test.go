package slackout

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/test/kit"
)

func TestMetadataIsSent(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			ev := hello()
			ev.Blocks = json.RawMessage(`[{"type":"divider"}]`)
			if _, err := newPoster(t, way.config(s)).Post(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			m := s.Messages()[0]
			if way.name == "webhook" {
				if _, sent := m.Form["metadata"]; sent {
					t.Errorf("a webhook was given metadata: %s", m.Form["metadata"])
				}
				return
			}
			want := `{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors"}}`
			kit.WantJSON(t, json.RawMessage(m.Form["metadata"]), want)
			kit.WantJSON(t, m.Metadata, want)
		})
	}
}

func TestMark(t *testing.T) {
	marks := map[string]string{}
	for _, test := range []struct {
		id    string
		plain bool
	}{
		{"e1", true},
		{"NOTIFY.2.dmzuuupa8tve", true},
		{"A/b:c_d-e+f=g~#@!%$*(){}[]|;,.?^`'", true},
		{strings.Repeat("x", 128), true},
		{strings.Repeat("x", 129), false},
		{strings.Repeat("x", 1<<20), false},
		{"two words", false},
		{" e1", false},
		{"e1\n", false},
		{"e1\x00", false},
		{"\x7f", false},
		{"é", false},
		{"e\u0301", false},
		{"世界", false},
		{"a&b", false}, {"a&amp;b", false}, {"a<b", false}, {"a>b", false}, {`a"b`, false}, {`a\b`, false},
		{hashMark, false},
		{markText("two words"), false},
	} {
		mark := markText(test.id)
		if (mark == test.id) != test.plain {
			t.Errorf("the mark of %.40q is %s", test.id, mark)
		}
		if len(mark) > maxMetadataID {
			t.Errorf("the mark of %.40q has %d bytes", test.id, len(mark))
		}
		if other, taken := marks[mark]; taken {
			t.Errorf("%.40q and %.40q have one mark", test.id, other)
		}
		marks[mark] = test.id
	}
	// It stands in Slack for long: a later version must not write it in another way.
	const want = "sha256:a03f1d611645eb53ad16c1af546ca0792dc884505bab57ede80f4dad6b911d3a"
	if got := markText("two words"); got != want {
		t.Errorf("the mark of an id with a space is %s, want %s", got, want)
	}
}

// Metadata is ours: that Slack does not take it must not cost an event.
func TestRefusedMetadata(t *testing.T) {
	for _, code := range strings.Fields(metadataCodes) {
		t.Run(code, func(t *testing.T) {
			s := startSlack(t)
			p := newPoster(t, ways[0].config(s))
			s.Respond(devstack.Next(devstack.Response{Code: code}))
			_, err := p.Post(t.Context(), hello())
			wantError(t, err, Error{Class: Retry, Code: code})
			for range 2 {
				if _, err := p.Post(t.Context(), hello()); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range s.Messages() {
				if _, sent := m.Form["metadata"]; sent {
					t.Error("the metadata was sent again")
				}
			}
			_, _, err = p.Find(t.Context(), hello())
			wantNoHistory(t, err, "no_metadata")
			if n := s.HistoryRequests(); n != 0 {
				t.Errorf("%d requests for what cannot be there", n)
			}
		})
	}
}

// Other apps' metadata has any form.
func TestMarkIsIn(t *testing.T) {
	wanted := markOf(event.Event{ID: "e1", Category: "errors", IDSource: "/ci"})
	for metadata, want := range map[string]bool{
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors","source":"/ci"}}`:            true,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors","source":"/ci","more":[1]}}`: true,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e2","category":"errors","source":"/ci"}}`:            false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"E1","category":"errors","source":"/ci"}}`:            false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"deploys","source":"/ci"}}`:           false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors","source":"/cd"}}`:            false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors"}}`:                           false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","source":"/ci"}}`:                                false,
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1"}}`:                                               false,
		`{"event_type":"task_created","event_payload":{"event_id":"e1","category":"errors","source":"/ci"}}`:              false,
		`{"event_payload":{"event_id":"e1","category":"errors","source":"/ci"}}`:                                          false,
		`{"event_type":"notifier_event","event_payload":{"event_id":1,"category":"errors","source":"/ci"}}`:               false,
		`{"event_type":"notifier_event","event_payload":["e1"]}`:                                                          false,
		`{"event_type":"notifier_event"}`: false,
		`{"event_type":7}`:                false,
		`{}`:                              false, `null`: false, `""`: false, `[]`: false, ``: false,
	} {
		if got := wanted.isIn(json.RawMessage(metadata)); got != want {
			t.Errorf("%s: %t", metadata, got)
		}
	}
	if without := markOf(event.Event{ID: "e1", Category: "errors"}); without.isIn(json.RawMessage(
		`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors","source":"/ci"}}`)) {
		t.Error("a message with a source is taken for the event without one")
	}
}
