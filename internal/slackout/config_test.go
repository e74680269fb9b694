package slackout

import "testing"

// TestForeignHost: a host's letters may be large, and a dot may end it.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	for webhook, want := range map[string]string{
		"":                                       "",
		"https://hooks.slack.com/services/T/B/x": "",
		"https://HOOKS.Slack.com/services/T/B/x": "",
		"https://hooks.slack.com./services/T/B/x":    "",
		"https://hooks.slack.com:443/services/T/B/x": "",
		"https://hooks.slack-gov.com/services/T/B/x": "",
		"https://Chat.example./hooks/x":              "chat.example",
		"https://hooks.slack.com.example/hooks/x":    "hooks.slack.com.example",
	} {
		if got := (Config{WebhookURL: webhook}).ForeignHost(); got != want {
			t.Errorf("%s: %q, expected %q", webhook, got, want)
		}
	}
}
