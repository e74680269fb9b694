package main

import (
	"strings"
	"testing"

	"notifier/test/kit"
)

// The events of TestServeBlocksAndAttachments.
const (
	withMention = `{"id":"mention","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[` +
		`{"type":"broadcast","range":"here"}]}]}],"attachments":[{"color":"danger","text":"<!channel> disk full"}]}`
	withLongHeader = `{"id":"long","blocks":[{"type":"header","text":{"type":"plain_text","text":"` +
		`0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789` +
		`012345678901234567890123456789012345678901234567890123456789"}}]}`
	withoutVisibleText = `{"id":"blank","text":"\u202e\u0007\u200b"}`
)

// TestServeBlocksAndAttachments publishes to a worker: mentions become text unless markup is allowed, Slack's
// explanation is in the log, and an event with nothing to show is never admitted.
func TestServeBlocksAndAttachments(t *testing.T) {
	t.Parallel()
	for markup, want := range map[string][]string{
		"escape": {`"text":"@here"`, `"text":"&lt;!channel&gt; disk full"`, `"color":"danger"`},
		"allow":  {`"type":"broadcast"`, `"text":"<!channel> disk full"`, `"color":"danger"`},
	} {
		t.Run(markup, func(t *testing.T) {
			t.Parallel()
			p, server, slack := worker(t, map[string]string{"SLACK_MARKUP": markup})
			readyURL(t, &p.out)
			js := kit.JetStream(t, server.URL())
			for _, payload := range []string{withMention, withLongHeader, withoutVisibleText} {
				_, err := js.Publish(t.Context(), "notify.errors", []byte(payload))
				kit.Check(t, err)
			}
			kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 3 })
			var posted strings.Builder
			for _, message := range slack.Messages() {
				posted.Write(message.Blocks)
				posted.WriteString(message.Form["attachments"])
			}
			for _, part := range want {
				if !strings.Contains(posted.String(), part) {
					t.Errorf("posted %s, expected %s in it", posted.String(), part)
				}
			}
			for id, want := range map[string][2]string{
				"long": {"slack_rejected", "invalid_blocks: [ERROR] must be less than 151 characters " +
					"[json-pointer:/blocks/0/text/text]"},
				"blank": {"malformed", "event has nothing to show, expected text, blocks or attachments"},
			} {
				line := logLine(t, strings.Join(p.out.lines(`"event_id":"`+id+`"`), ""))
				if line["outcome"] != "dead" || line["reason"] != want[0] || line["detail"] != want[1] {
					t.Errorf("%v, expected %v", line, want)
				}
			}
		})
	}
}
