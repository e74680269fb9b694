package main

import (
	"strings"
	"testing"

	"notifier/test/kit"
)

// The events of TestServeBlocks: one with a link and one with a type that carries links behind words.
const (
	withLink  = `{"id":"link","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"link","url":"https://evil.example/x","text":"bank"},{"type":"link","url":"https://wiki.example/x","text":"runbook"}]}]}]}`
	withVideo = `{"id":"video","blocks":[{"type":"video","title_url":"https://evil.example","title":{"type":"plain_text","text":"bank"}}]}`
)

// TestServeBlocks is what becomes of blocks in a worker: links show where they go, types that are not known
// to be harmless are dead letters and named, and both pass where markup is allowed.
func TestServeBlocks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		settings map[string]string
		posted   []string // in Slack's blocks, a message each
	}{
		{"escape", map[string]string{"SLACK_LINK_HOSTS": "*.example.org, wiki.example"}, []string{`"text":"bank (evil.example)"`, `"text":"runbook"`}},
		{"allow", map[string]string{"SLACK_MARKUP": "allow"}, []string{`"text":"bank"`, `"title_url":"https://evil.example"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, server, slack := worker(t, test.settings)
			readyURL(t, &p.out)
			js := kit.JetStream(t, server.URL())
			for _, payload := range []string{withLink, withVideo} {
				_, err := js.Publish(t.Context(), "notify.errors", []byte(payload))
				kit.Check(t, err)
			}
			kit.Eventually(t, "both settled", func() bool { return len(p.out.lines(`"outcome":`)) == 2 })
			var posted strings.Builder
			for _, message := range slack.Messages() {
				posted.Write(message.Blocks)
			}
			for _, want := range test.posted {
				if !strings.Contains(posted.String(), want) {
					t.Errorf("posted %s, expected %s in it", posted.String(), want)
				}
			}
			dead := p.out.lines(`"outcome":"dead"`)
			if test.name == "allow" {
				if len(dead) > 0 {
					t.Errorf("%s, expected trusted blocks to be sent", dead)
				}
				return
			}
			line := logLine(t, strings.Join(dead, ""))
			if detail, _ := line["detail"].(string); line["event_id"] != "video" || line["reason"] != "malformed" || !strings.HasPrefix(detail, `blocks[0].type is "video", expected one of actions, `) {
				t.Errorf("%s, expected the video to be malformed", dead)
			}
		})
	}
}
