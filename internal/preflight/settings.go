package preflight

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"notifier/internal/cause"
	"notifier/internal/settings"
	"notifier/internal/telemetry"
	"notifier/internal/term"
)

// settingsGroup finds valid settings that do not fit together or are unsafe. It connects to nothing.
func settingsGroup(s settings.Settings) group {
	warnings := func(check func(settings.Settings) []string, ok string) func(context.Context) []Row {
		return func(context.Context) (rows []Row) {
			for _, problem := range check(s) {
				rows = append(rows, Row{State: Warn, Message: problem})
			}
			if len(rows) == 0 {
				rows = one(OK, "%s", ok)
			}
			return rows
		}
	}
	text := fmt.Sprintf("%s global, %s per category", s.Store.Limits.Global, s.Store.Limits.Category)
	return group{checks: []check{
		{"settings", warnings(checkSettings, "valid")},
		{"limits", warnings(checkLimits, text)},
	}}
}

func checkSettings(s settings.Settings) (problems []string) {
	warn := func(format string, arguments ...any) {
		problems = append(problems, fmt.Sprintf(format, arguments...))
	}
	for _, variable := range s.Unknown {
		warn("%s; correct its name, or remove it", variable)
	}
	for _, file := range s.Exposed {
		warn("%s; allow only its owner and group: chmod o-rwx, or defaultMode: 0440 in Kubernetes", file)
	}
	if s.ShutdownTimeout < s.Slack.Timeout {
		warn("SHUTDOWN_TIMEOUT %s is below SLACK_TIMEOUT %s, so a stopping worker can cut off a post, which is "+
			"then repeated; raise it", term.ShortDuration(s.ShutdownTimeout), term.ShortDuration(s.Slack.Timeout))
	}
	if strings.HasPrefix(s.Slack.Token, "xoxp-") {
		warn("SLACK_BOT_TOKEN is a user token (xoxp-), which posts as that user; use a bot token (xoxb-...)")
	}
	if s.Slack.Token != "" && unencrypted(s.Slack.APIURL) {
		warn("SLACK_API_URL is http, so the token and all messages cross the network unencrypted; use https")
	}
	if unencrypted(s.Slack.WebhookURL) {
		warn("SLACK_WEBHOOK_URL is http, so it and all messages cross the network unencrypted; use https")
	}
	if s.Slack.WebhookURL != "" && s.Slack.Channel != "" {
		warn("SLACK_CHANNEL is %s, although SLACK_WEBHOOK_URL has a channel of its own, and only the oldest "+
			"webhooks post elsewhere; remove SLACK_CHANNEL", s.Slack.Channel)
	}
	if s.Digest == 0 && s.DigestChannel != s.Slack.Channel {
		warn("DIGEST_CHANNEL has no effect without DIGEST_INTERVAL; set both, or remove DIGEST_CHANNEL")
	}
	host, _, err := net.SplitHostPort(s.AdminAddr)
	if err == nil && !isLoopback(host) && s.AdminToken == "" {
		warn("ADMIN_ADDR %s is reachable from the network without a token; set ADMIN_TOKEN", s.AdminAddr)
	}
	if err := cause.UnusableRoots(); err != nil {
		warn("%v; Go ignores it, so private authorities are unknown: correct it, or remove it", err)
	}
	if err := telemetry.CheckTracing(); err != nil {
		for problem := range strings.SplitSeq(err.Error(), "\n") {
			warn("no traces are exported: %s; correct it, or remove it", problem)
		}
	}
	return problems
}

func unencrypted(raw string) bool {
	parsed, err := url.Parse(raw)
	return err == nil && parsed.Scheme == "http" && !isLoopback(parsed.Hostname())
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkLimits finds reservations above the limit of their category.
func checkLimits(s settings.Settings) (problems []string) {
	limits := s.Store.Limits
	window := limits.ReservedTier().Window
	for _, name := range slices.Sorted(maps.Keys(limits.Reserve)) {
		reserved, limit := limits.Reserve[name], limits.LimitFor(name)
		if limit.Most(window) < reserved {
			problems = append(problems, fmt.Sprintf(
				"LIMIT_RESERVE keeps %d slots for %s, although its limit %s allows only %d in %s; lower it",
				reserved, name, limit, limit.Most(window), term.ShortDuration(window)))
		}
	}
	return problems
}
