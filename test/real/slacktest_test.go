package real

import (
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/slacktest"

	"notifier/test/kit"
)

// TestSlacktest: slack-go's server for tests accepts each kind of message, and passes its parts on to a
// reader with slack-go's client.
func TestSlacktest(t *testing.T) {
	t.Parallel()
	slacktestRow.record(t, "")
	server := slacktest.NewTestServer()
	server.Start()
	t.Cleanup(server.Stop)
	_, env := services(t)
	env["SLACK_API_URL"] = server.GetAPIURL()
	client := slack.New("xoxb-reader", slack.OptionAPIURL(server.GetAPIURL()))
	reader := client.NewRTM()
	go reader.ManageConnection()
	t.Cleanup(func() { _ = reader.Disconnect() })
	startWorker(t, env)
	if out := run(t, env, "check"); !strings.Contains(out, "workspace SlackTest Team") {
		t.Errorf("check does not know the workspace:\n%s", out)
	}
	js := kit.JetStream(t, env["NATS_URL"])
	expected := map[string]func(slack.Message) bool{ // by text
		"a &lt;b&gt; &amp; c": func(m slack.Message) bool { return m.Channel == "C0REAL" && m.ThreadTimestamp == "" },
		"in a thread":         func(m slack.Message) bool { return m.ThreadTimestamp == "1234567890.123456" },
		"with blocks": func(m slack.Message) bool {
			if len(m.Blocks.BlockSet) != 2 {
				return false
			}
			section, isSection := m.Blocks.BlockSet[0].(*slack.SectionBlock)
			return isSection && section.Text.Text == "*disk* full" && m.Blocks.BlockSet[1].BlockType() == slack.MBTDivider
		},
		"with attachments": func(m slack.Message) bool {
			return len(m.Attachments) == 1 && m.Attachments[0].Text == "late" && m.Attachments[0].Color == "#36a64f"
		},
	}
	for _, payload := range []string{
		"a <b> & c",
		`{"text": "in a thread", "thread_ts": "1234567890.123456"}`,
		`{"text": "with blocks", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "*disk* full"}}, {"type": "divider"}]}`,
		`{"text": "with attachments", "attachments": [{"text": "late", "color": "#36a64f"}]}`,
	} {
		_, err := js.Publish(t.Context(), "notify.kinds", []byte(payload))
		kit.Check(t, err)
	}
	for range len(expected) {
		message := receive(t, reader)
		if as := expected[message.Text]; as == nil || !as(message) {
			t.Errorf("a reader gets %+v", message)
		}
		delete(expected, message.Text)
	}
	expectSent(t, env, "more", false)
}

// receive returns the next message that a reader of the workspace gets.
func receive(t *testing.T, reader *slack.RTM) slack.Message {
	t.Helper()
	deadline := time.After(kit.Patience)
	for {
		select {
		case event := <-reader.IncomingEvents:
			if message, ok := event.Data.(*slack.MessageEvent); ok {
				return slack.Message(*message)
			}
		case <-deadline:
			t.Fatal("the reader gets no message")
		}
	}
}
