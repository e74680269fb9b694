package slackout_test

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/event"
	"notifier/internal/slackout"
	"notifier/test/kit"
)

// TestPreview: it shows what would be posted, and says when a text is cut and not when it only has to be
// escaped.
func TestPreview(t *testing.T) {
	const most = 40_000
	for name, test := range map[string]struct {
		config slackout.Config
		event  event.Event
		want   slackout.Preview
	}{
		"escaped": {slackout.Config{Channel: "#alerts"}, event.Event{Text: "a <b>"}, slackout.Preview{Channel: "#alerts", Text: "a &lt;b&gt;"}},
		"trusted": {slackout.Config{AllowMarkup: true}, event.Event{Text: "a <b>"}, slackout.Preview{Text: "a <b>"}},
		"its own channel and blocks": {
			slackout.Config{Channel: "#alerts"},
			event.Event{Channel: "C1", Blocks: json.RawMessage(`[{"type":"divider"},{"type":"divider"}]`)},
			slackout.Preview{Channel: "C1", Blocks: 2},
		},
		"just short enough": {slackout.Config{}, event.Event{Text: strings.Repeat("x", most)}, slackout.Preview{Text: strings.Repeat("x", most)}},
	} {
		got, err := test.config.Preview(test.event)
		kit.Check(t, err)
		if got != test.want {
			t.Errorf("%s: %.200v, expected %.200v", name, got, test.want)
		}
	}
	for _, config := range []slackout.Config{{}, {AllowMarkup: true}} {
		for _, text := range []string{strings.Repeat("x", most+1), strings.Repeat("&", 2<<20)} {
			got, err := config.Preview(event.Event{Text: text})
			kit.Check(t, err)
			if !got.Cut || len(got.Text) > 5*most {
				t.Errorf("a text of %d bytes: cut %t, %d bytes", len(text), got.Cut, len(got.Text))
			}
		}
	}
}
