package main

import (
	"strings"
	"testing"

	"notifier/test/kit"
)

// withMention is an event with blocks and attachments that ping people.
const withMention = `{"id":"mention","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[` +
	`{"type":"broadcast","range":"here"}]}]}],"attachments":[{"color":"danger","text":"<!channel> disk full"}]}`

// TestServeBlocksAndAttachments publishes to a worker: mentions become text unless markup is allowed.
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
			_, err := js.Publish(t.Context(), "notify.errors", []byte(withMention))
			kit.Check(t, err)
			kit.Eventually(t, "it is settled", func() bool { return len(p.out.lines(`"outcome":`)) == 1 })
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
		})
	}
}
