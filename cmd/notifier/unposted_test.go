package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/status"
	"notifier/test/kit"
)

// TestAChannelThatIsBehindIsNamed: events that wait for the pace of a channel show in the metrics and as held.
func TestAChannelThatIsBehindIsNamed(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"SLACK_ROUTES": "deploys=#deploys", "SLACK_PACE": "2/1h"})
	p := start(t, env)
	metrics := adminURL(t, &p.out) + "/metrics"
	expectMetrics(t, metrics, `notifier_held_events\{why="pace"\} 0`, `notifier_held_events\{why="slack"\} 0`,
		`notifier_unposted_events\{channel="#alerts"\} 0`, `notifier_unposted_oldest_seconds\{channel="#alerts"\} 0`)

	publishes(t, env, "errors", "disk full") // Slack's reply shows the ID of the channel
	kit.Eventually(t, "the first is sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 1 })
	publishes(t, env, "errors", "-n", "4", "disk full")
	publishes(t, env, "deploys", "-n", "2", "v1.2.3 is out")
	expectMetrics(t, metrics, `notifier_held_events\{why="pace"\} 3`, `notifier_held_events\{why="slack"\} 0`,
		`notifier_unposted_events\{channel="#alerts"\} 3`, `notifier_unposted_oldest_seconds\{channel="#alerts"\} (0\.0*[1-9]|[1-9])`,
		`notifier_unposted_events\{channel="#deploys"\} 0`, `notifier_unposted_oldest_seconds\{channel="#deploys"\} 0`)
	eventuallyStatus(t, "it counts them", env, func(now status.State) bool { return len(now.Replicas) == 1 && now.Replicas[0].Held == 3 })
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

// TestAPausedChannelIsNamed: in the log, on /readyz?verbose, in the status and in the metrics; the other channel goes
// on.
func TestAPausedChannelIsNamed(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"SLACK_ROUTES": "deploys=#deploys"})
	p := startReady(t, env)
	admin := adminURL(t, &p.out)
	// so that the refusal is this channel's: the workspace would refuse others too
	publishes(t, env, "errors", "-n", "3", "disk full")
	kit.Eventually(t, "they are sent", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 3 })
	slack.Respond(devstack.Next(devstack.Response{RetryAfter: "60"}))
	publishes(t, env, "errors", "disk full")
	kit.Eventually(t, "the log names the channel", func() bool {
		lines := p.out.lines(`"msg":"waiting"`)
		return len(lines) > 0 && logLine(t, lines[0])["channel"] == "#alerts" && strings.HasPrefix(logLine(t, lines[0])["reason"].(string), "Slack asked to wait ")
	})
	publishes(t, env, "errors", "-n", "3", "disk full")
	waiting := regexp.MustCompile(`^ok\nslack #alerts: Slack asked to wait \d+ s, 4 queued, for \S+\n4 of 4 in flight held: slack 4\n$`)
	readyz := func() bool { _, body := get(t, admin+"/readyz?verbose"); return waiting.MatchString(body) }
	kit.Eventually(t, "/readyz?verbose names the channel", readyz)
	publishes(t, env, "deploys", "-n", "2", "v1.2.3 is out")
	kit.Eventually(t, "the other channel goes on", func() bool { return len(p.out.lines(`"outcome":"sent"`)) == 5 })
	expectMetrics(t, admin+"/metrics", `notifier_held_events\{why="slack"\} 4`, `notifier_unposted_events\{channel="#alerts"\} 4`)
	eventuallyStatus(t, "it counts them", env, func(now status.State) bool {
		return hasCondition(now, "channel/#alerts", status.Warn, "left, 4 events wait") &&
			strings.HasPrefix(now.Summary, "Sending, but not to #alerts: Slack asked to wait, ")
	})
}
