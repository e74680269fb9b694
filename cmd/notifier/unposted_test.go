package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/status"
	"notifier/test/kit"
)

// TestAChannelThatIsBehindIsNamed: what waits for the pace of a channel shows in the metrics and the status,
// until it is posted.
func TestAChannelThatIsBehindIsNamed(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"SLACK_ROUTES": "deploys=#deploys", "SLACK_PACE": "2/1h"})
	p := start(t, env)
	metrics := adminURL(t, &p.out) + "/metrics"
	expectMetrics(t, metrics, `notifier_held_events\{why="pace"\} 0`, `notifier_held_events\{why="slack"\} 0`,
		`notifier_unposted_events\{channel="#alerts"\} 0`, `notifier_unposted_oldest_seconds\{channel="#alerts"\} 0`)

	publishes(t, env, "errors", "disk full") // its answer shows the ID of the channel
	kit.Eventually(t, "the first is sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 1 })
	publishes(t, env, "errors", "-n", "4", "disk full")
	publishes(t, env, "deploys", "-n", "2", "v1.2.3 is out")
	expectMetrics(t, metrics, `notifier_held_events\{why="pace"\} 3`, `notifier_held_events\{why="slack"\} 0`,
		`notifier_unposted_events\{channel="#alerts"\} 3`, `notifier_unposted_oldest_seconds\{channel="#alerts"\} (0\.0*[1-9]|[1-9])`,
		`notifier_unposted_events\{channel="#deploys"\} 0`, `notifier_unposted_oldest_seconds\{channel="#deploys"\} 0`)
	eventuallyStatus(t, "it counts them", env, func(now status.Status) bool {
		return now.Held == 3 && len(now.Unposted) == 1 && now.Unposted[0].Channel == "#alerts" && now.Unposted[0].Events == 3 && now.Unposted[0].OldestS > 0
	})
	line := regexp.MustCompile(`(?m)^#alerts: 3 events wait to be posted, the oldest for \S+; the pace of the channel$`)
	if out, _ := runToEnd(t, env, exitDone, "status"); !line.MatchString(out) {
		t.Errorf("no line %s in:\n%s", line, out)
	}
	if status, body := get(t, strings.TrimSuffix(metrics, "metrics")+"readyz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz answers %d %q, expected it to be ready: a pace is no outage", status, body)
	}
}

// expectMetrics waits until /metrics has a line for each pattern.
func expectMetrics(t *testing.T, url string, patterns ...string) {
	t.Helper()
	text := ""
	matches := func() bool {
		_, text = get(t, url)
		for _, pattern := range patterns {
			if !regexp.MustCompile(`(?m)^` + pattern).MatchString(text) {
				return false
			}
		}
		return true
	}
	if !kit.Within(kit.Patience, matches) {
		t.Errorf("/metrics lacks one of %q:\n%s", patterns, strings.Join(regexp.MustCompile(`(?m)^notifier_(held|unposted).*`).FindAllString(text, -1), "\n"))
	}
}

// TestAPausedChannelIsNamed: in the log, on /readyz, in the status and in the metrics; the other channel goes
// on.
func TestAPausedChannelIsNamed(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"SLACK_ROUTES": "deploys=#deploys"})
	p := startReady(t, env)
	admin := adminURL(t, &p.out)
	// so that the refusal is this channel's: the workspace would refuse others too
	publishes(t, env, "errors", "-n", "3", "disk full")
	kit.Eventually(t, "they are sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 3 })
	slack.Next(devstack.Behaviour{RetryAfter: "60"})
	publishes(t, env, "errors", "disk full")
	kit.Eventually(t, "the log names the channel", func() bool {
		lines := p.out.lines(`"msg":"waiting"`)
		return len(lines) > 0 && logLine(t, lines[0])["channel"] == "#alerts" && strings.HasPrefix(logLine(t, lines[0])["reason"].(string), "Slack asked to wait ")
	})
	publishes(t, env, "errors", "-n", "3", "disk full")
	waiting := regexp.MustCompile(`^ok\nwaiting for slack for \S+, 4 events held: #alerts: Slack asked to wait \d+ s\n$`)
	readyz := func() bool { _, body := get(t, admin+"/readyz"); return waiting.MatchString(body) }
	kit.Eventually(t, "/readyz names the channel", readyz)
	publishes(t, env, "deploys", "-n", "2", "v1.2.3 is out")
	kit.Eventually(t, "the other channel goes on", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 5 })
	expectMetrics(t, admin+"/metrics", `notifier_held_events\{why="slack"\} 4`, `notifier_unposted_events\{channel="#alerts"\} 4`)
	eventuallyStatus(t, "it counts them", env, func(now status.Status) bool {
		return now.Held == 4 && len(now.Unposted) == 1 && now.Unposted[0].Why == "slack"
	})
	out, _ := runToEnd(t, env, exitDone, "status")
	for _, want := range []string{
		`(?m)^#alerts: Slack asked to wait \d+ s \(for \S+, \S+, 4 events held\)$`,
		`(?m)^#alerts: 4 events wait to be posted, the oldest for \S+; Slack takes no posts at the moment$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line %s in:\n%s", want, out)
		}
	}
}

// seesPause has Slack ask an event to wait, and waits until the page has shown the texts of each selector
// meanwhile. On a busy machine it may miss a short pause, so each attempt has a longer one. It returns how
// many there were, each with an event.
func (b *browser) seesPause(
	t *testing.T, server *devstack.NATS, slack *devstack.Slack, log *output, category string, expected [][]string,
) (attempts int) {
	t.Helper()
	sent := func() int { return len(log.lines(`"outcome":"sent"`)) }
	missed := ""
	for _, seconds := range []int{8, 30} {
		attempts++
		before, began, pause := sent(), time.Now(), time.Duration(seconds)*time.Second
		slack.Next(devstack.Behaviour{RetryAfter: strconv.Itoa(seconds)})
		publishEach(t, server, category, 1)
		missed = ""
		for _, texts := range expected {
			if shown, holds := b.shows(t, time.Until(began.Add(pause)), texts[0], texts[1:]...); !holds {
				missed = fmt.Sprintf("%s shows %q, expected %q", texts[0], shown, texts[1:])
				break
			}
		}
		kit.Eventually(t, "the pause is over", func() bool { return sent() > before })
		if waited := time.Since(began); waited < pause-time.Second {
			t.Errorf("the event was sent after %s, and Slack had asked to wait %s", waited, pause)
		}
		if missed == "" {
			return attempts
		}
	}
	t.Fatal(missed)
	return attempts
}
