package preflight

import (
	"context"
	"net"
	"net/url"
	"strings"

	"notifier/internal/settings"
	"notifier/internal/term"
)

// checkSettings looks for settings that are valid each by itself but not together, or that are unsafe.
func checkSettings(ctx context.Context, s settings.Settings, r *report) {
	r.ok("all settings are valid")
	if s.ShutdownTimeout < s.Slack.Timeout {
		r.warn(
			"set SHUTDOWN_TIMEOUT above SLACK_TIMEOUT",
			"SHUTDOWN_TIMEOUT %s is shorter than SLACK_TIMEOUT %s, so a stopping worker can cut off a post that is then repeated",
			term.ShortDuration(s.ShutdownTimeout),
			term.ShortDuration(s.Slack.Timeout),
		)
	}
	switch {
	case s.AdminAddr == "":
		r.note("", "ADMIN_ADDR is empty: there are no health checks and no metrics")
	case isLoopback(hostOf(s.AdminAddr)):
	case s.AdminToken == "":
		r.note("set ADMIN_TOKEN, or let only probes and Prometheus reach it",
			"ADMIN_ADDR %s can be reached from the network and asks for no token", s.AdminAddr)
	default:
		r.ok("ADMIN_ADDR %s can be reached from the network and asks for ADMIN_TOKEN", s.AdminAddr)
	}
	checkAdminAddr(ctx, s.AdminAddr, r)
	if strings.HasPrefix(s.Slack.Token, "xoxp-") {
		r.warn(
			"use the bot token (xoxb-...) of the app's page OAuth & Permissions",
			"SLACK_BOT_TOKEN is a person's token (xoxp-): messages are posted in that person's name, until the person leaves",
		)
	}
	if unencrypted(s.Slack.APIURL) && s.Slack.Token != "" {
		r.warn("use https", "SLACK_API_URL is http, so the token and all messages cross the network unencrypted")
	}
	if unencrypted(s.Slack.WebhookURL) {
		r.warn(
			"use https",
			"SLACK_WEBHOOK_URL is http, so the webhook and all messages cross the network unencrypted",
		)
	}
	for _, file := range s.Exposed {
		r.warn(
			"let its owner and group alone use it: chmod o-rwx, or defaultMode: 0440 of a secret's volume in Kubernetes",
			"%s",
			file,
		)
	}
	for _, variable := range s.Unknown {
		r.warn("correct its name, or remove it", "%s", variable)
	}
	if s.Slack.AllowMarkup {
		r.note(
			"let only trusted publishers publish",
			"SLACK_MARKUP is allow: an event can ping the whole channel and disguise links",
		)
	}
}

// unencrypted reports whether requests to a URL cross the network in plain text.
func unencrypted(raw string) bool {
	parsed, err := url.Parse(raw)
	return err == nil && parsed.Scheme == "http" && !isLoopback(parsed.Hostname())
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
