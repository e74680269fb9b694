package isolation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestAPoisonedEventStepsAside: Slack, or a front end before it, fails one event again and again. Others of its channel are
// posted, and it ends dead with Slack's last answer.
func TestAPoisonedEventStepsAside(t *testing.T) {
	needsFull(t)
	for kind, answer := range map[string]string{devstack.FailHTML: "403", devstack.FailInternal: "internal_error"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const others, bar, patience = 20, 10 * time.Second, 8 * time.Minute
			w := newWorld(t, settings{
				"SLACK_CHANNEL": "C0POISON", "SLACK_PACE": "off", "LIMIT_GLOBAL": wide, "LIMIT_CATEGORY": wide,
			})
			w.mode(devstack.Mode{Fail: []devstack.Failure{{Text: "poison", Kind: kind}}})
			w.startWorkers(1)
			w.publish("poisoned", "poison")
			kit.Eventually(t, "the poisoned event has failed", func() bool { return w.slack.Refused("C0POISON").Failed > 0 })
			var ids []string
			for i := range others {
				ids = append(ids, fmt.Sprintf("good-%d", i))
				w.publish("good", ids[i])
			}
			posts := w.waitPosted(bar, ids)
			var last line
			kit.Within(patience, func() bool { last = w.settled()["poison"]; return last.Outcome != "" })
			letter := w.letter("poisoned")
			end := "still in flight"
			if last.Outcome != "" {
				took := last.Time.Sub(w.published["poison"]).Round(100 * time.Millisecond)
				end = fmt.Sprintf("%s: %s, %q after %s, letter %q", last.Outcome, last.Reason, last.Detail, took, letter)
			}
			met := posts.missing == 0 && last.Outcome == "dead" && last.Reason == "undeliverable" &&
				strings.Contains(last.Detail, answer) && letter == "undeliverable"
			if !met {
				w.door.show(t)
			}
			judge(t, "6. poisoned event, "+kind, met, fmt.Sprintf("%d others within %s; dead: undeliverable, %s; a letter", others, bar, answer),
				"others within %s, %d never; %s", posts.all[others-1].Round(10*time.Millisecond), posts.missing, end)
		})
	}
}
