package slackout

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/event"
	"notifier/test/kit"
)

func TestPreview(t *testing.T) {
	ev := event.Event{
		Channel: "C1", Text: "a <b>", Attachments: json.RawMessage(`[ {"text":"<b>"} ]`),
		Blocks: json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"<!here>"}}]`),
	}
	escaped := Preview{
		Channel:     "C1",
		Text:        "a &lt;b&gt;",
		Blocks:      json.RawMessage(`[{"text":{"text":"&lt;!here&gt;","type":"mrkdwn","verbatim":true},"type":"section"}]`),
		Attachments: json.RawMessage(`[{"text":"&lt;b&gt;"}]`),
	}
	trusted := Preview{Channel: "C1", Text: ev.Text, Blocks: ev.Blocks, Attachments: ev.Attachments}
	long := strings.Repeat("x", maxText)
	for _, test := range []struct {
		allow bool
		event event.Event
		want  Preview
	}{
		{false, ev, escaped},
		{true, ev, trusted},
		{false, event.Event{Text: long}, Preview{Channel: "#alerts", Text: long}},
	} {
		got, err := Config{Channel: "#alerts", AllowMarkup: test.allow}.Preview(test.event)
		kit.Check(t, err)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestPreviewOfALongTextIsCut(t *testing.T) {
	for _, config := range []Config{{}, {AllowMarkup: true}} {
		got, err := config.Preview(event.Event{Text: strings.Repeat("&", maxText+1)})
		kit.Check(t, err)
		if n := utf8.RuneCountInString(got.Text); !got.Cut || n > maxText {
			t.Errorf("cut %t, %d characters", got.Cut, n)
		}
	}
}
