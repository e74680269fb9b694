package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// The events of TestServeBlocks: one with a link and one with a type that carries links behind words.
const (
	withLink  = `{"id":"link","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"link","url":"https://evil.example/x","text":"bank"},{"type":"link","url":"https://wiki.example/x","text":"runbook"}]}]}]}`
	withVideo = `{"id":"video","blocks":[{"type":"video","title_url":"https://evil.example","title":{"type":"plain_text","text":"bank"}}]}`
)

// TestServeBlocks is what becomes of blocks in a worker: links show where they go, types that are not known to be harmless
// are dead letters and named, and both pass where markup is allowed.
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
			admin := adminURL(t, &p.out)
			kit.Eventually(t, "ready", func() bool {
				status, _ := get(t, admin+"/readyz")
				return status == http.StatusOK
			})
			connection, err := nats.Connect(server.URL())
			kit.Check(t, err)
			defer connection.Close()
			for _, payload := range []string{withLink, withVideo} {
				kit.Check(t, connection.Publish("notify.errors", []byte(payload)))
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
			var line map[string]any
			kit.Check(t, json.Unmarshal([]byte(strings.Join(dead, "")), &line))
			if detail, _ := line["detail"].(string); line["event_id"] != "video" || line["reason"] != "malformed" || !strings.HasPrefix(detail, `blocks[0].type is "video", expected one of actions, `) {
				t.Errorf("%s, expected the video to be malformed", dead)
			}
		})
	}
}
