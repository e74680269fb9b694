package slackout_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/event"
	"notifier/internal/slackout"
	"notifier/test/kit"
)

func TestPreviewIsTheMessageAsSlackGetsIt(t *testing.T) {
	const max = 4_000
	section := json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"<!here>"}}]`)
	for name, test := range map[string]struct {
		config slackout.Config
		event  event.Event
		want   slackout.Preview
	}{
		"escaped": {
			slackout.Config{Channel: "#alerts"}, event.Event{Text: "a <b>"},
			slackout.Preview{Channel: "#alerts", Text: "a &lt;b&gt;"},
		},
		"trusted": {
			slackout.Config{AllowMarkup: true}, event.Event{Text: "a <b>", Blocks: section},
			slackout.Preview{Text: "a <b>", Blocks: section},
		},
		"its own channel, blocks and attachments": {
			slackout.Config{Channel: "#alerts"},
			event.Event{Channel: "C1", Blocks: section, Attachments: json.RawMessage(`[ {"text":"<b>"} ]`)},
			slackout.Preview{
				Channel:     "C1",
				Blocks:      json.RawMessage(`[{"text":{"text":"&lt;!here&gt;","type":"mrkdwn","verbatim":true},"type":"section"}]`),
				Attachments: json.RawMessage(`[{"text":"&lt;b&gt;"}]`),
			},
		},
		"just short enough": {
			slackout.Config{}, event.Event{Text: strings.Repeat("x", max)},
			slackout.Preview{Text: strings.Repeat("x", max)},
		},
	} {
		got, err := test.config.Preview(test.event)
		kit.Check(t, err)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, config := range []slackout.Config{{}, {AllowMarkup: true}} {
		for _, text := range []string{strings.Repeat("x", max+1), strings.Repeat("&", 2<<20)} {
			got, err := config.Preview(event.Event{Text: text})
			kit.Check(t, err)
			if !got.Cut || len(got.Text) > max+len("…") {
				t.Errorf("a text of %d bytes: cut %t, %d bytes", len(text), got.Cut, len(got.Text))
			}
		}
	}
}
