package isolation

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"notifier/test/kit"
)

// Three workers under the default limits send a storm into one channel, which takes 12 posts in 10 s and
// responds to more with a Retry-After of 10 s. Admitted events arrive at the pace, and Slack refuses at most
// five posts. The settings name the channel by ID, or by name; workers learn the ID of a name from Slack's
// response.
func TestAStormIntoOneChannel(t *testing.T) {
	needsFull(t)
	for _, channel := range []string{"#alerts", "C0ALERTS"} {
		t.Run(channel, func(t *testing.T) {
			t.Parallel()
			const posts, mostRefused, bar = 100, 5, 115 * time.Second
			d := newDeployment(t, settings{"SLACK_CHANNEL": channel, "SLACK_PACE": pace})
			d.slack.SetLimit(slackLimit(t), window)
			d.startWorkers(3)

			for i := range 180 {
				d.publish(fmt.Sprintf("storm-%d", i%12), fmt.Sprintf("event-%d", i))
			}
			begun := time.Now()
			d.flush()
			kit.Within(bar, func() bool { return d.slack.Accepted() >= posts })
			took := time.Since(begun)
			refused := len(d.slackProxy.Posts(func(p kit.SlackPost) bool { return p.Status == http.StatusTooManyRequests }))
			arrived := d.slack.Accepted()
			judge(t, "1. storm into "+channel, arrived == posts && took <= bar && refused <= mostRefused,
				fmt.Sprintf("%d posted in %s, at most %d refused", posts, bar, mostRefused),
				"%d posted in %s, %d requests refused", arrived, took.Round(100*time.Millisecond), refused)
			if arrived != posts {
				return
			}
			kit.Eventually(t, "the stream is empty", func() bool { return d.pending() == 0 })
			if once := len(d.posted()); once != posts || d.slack.Accepted() != posts {
				t.Errorf("%d events are in the channel in %d messages, expected %d of each", once, d.slack.Accepted(), posts)
			}
		})
	}
}
