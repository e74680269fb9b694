package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

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
