package slackout

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/event"
)

func TestMark(t *testing.T) {
	marks := map[string]string{}
	for _, test := range []struct {
		id    string
		plain bool
	}{
		{"e1", true},
		{"A/b:c_d-e+f=g~#@!%$*(){}[]|;,.?^`'", true},
		{strings.Repeat("x", 128), true},
		{strings.Repeat("x", 129), false},
		{"two words", false},
		{"\x7f", false},
		{"é", false},
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
			if !AsError(err).Unmarked {
				t.Error("the failure does not say that there are no marks any more")
			}
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
	ours := `{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors","source":"/ci"}}`
	if !wanted.isIn(json.RawMessage(ours)) {
		t.Error("its own mark is not recognized")
	}
	for _, change := range [][2]string{
		{`"e1"`, `"e2"`},
		{`"e1"`, `1`},
		{`"errors"`, `"deploys"`},
		{`"/ci"`, `"/cd"`},
		{`,"source":"/ci"`, ``},
		{`notifier_event`, `task_created`},
		{`"notifier_event"`, `7`},
		{ours, `[]`},
	} {
		if metadata := strings.Replace(ours, change[0], change[1], 1); wanted.isIn(json.RawMessage(metadata)) {
			t.Errorf("%s is taken for %s", metadata, ours)
		}
	}
	if markOf(hello()).isIn(json.RawMessage(ours)) {
		t.Error("a message with a source is taken for the event without one")
	}
}
