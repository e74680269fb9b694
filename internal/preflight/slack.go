package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"

	"notifier/internal/settings"
	"notifier/internal/slackout"
	"notifier/internal/term"
)

// slackAdvice is what to do about an error that Slack returns for a token.
var slackAdvice = map[string]string{
	"invalid_auth":     "SLACK_BOT_TOKEN is not a valid token: copy it again from the app's page",
	"token_revoked":    "install the app into the workspace again, and set the new SLACK_BOT_TOKEN",
	"token_expired":    "rotated tokens are not supported: turn token rotation off in the app's settings",
	"account_inactive": "the app was removed or its workspace is gone: install it again, and set the new SLACK_BOT_TOKEN",
	"accesslimited":    "Slack accepts this token only from other networks: check the app's list of allowed addresses",
	"unknown_method":   "SLACK_API_URL is not the base of Slack's Web API, such as https://slack.com/api/",
	"http_404":         "SLACK_API_URL is not the base of Slack's Web API, such as https://slack.com/api/",
	"invalid_response": "something other than Slack answers there: a proxy's page, or another server",
	"tls_error":        "there may be a proxy with its own certificate in between, or the image has no root certificates",
	"dns_error":        "check the network, and HTTPS_PROXY",
	"timeout":          "check the network, and HTTPS_PROXY",
}

// checkSlack asks Slack who the token belongs to and what it may do. It posts nothing.
func checkSlack(ctx context.Context, s settings.Settings, r *report) {
	poster, err := slackout.New(s.Slack)
	if err != nil {
		r.fail("", "%v", err)
		return
	}
	defer poster.Close()
	if s.Slack.WebhookURL != "" {
		r.note(
			`"notifier publish CATEGORY" tests it`,
			"a webhook cannot be tested without posting, so it was not checked",
		)
		r.note(
			"use a bot token to avoid that",
			"with a webhook notifier cannot look up whether a message has arrived: after a crash in the middle of a post it is posted again",
		)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	identity, err := poster.CheckAuth(ctx)
	if err != nil {
		advice := ""
		if refused := (*slackout.Error)(nil); errors.As(err, &refused) {
			advice = slackAdvice[refused.Code]
		}
		r.fail(advice, "%v", err)
		return
	}
	r.ok("workspace %s, user %s%s", identity.Team, identity.User, botName(identity))
	checkScopes(identity.Scopes, r)
	checkChannels(s, r)
}

func botName(identity slackout.Identity) string {
	if identity.BotID == "" {
		return ", which is not a bot"
	}
	return ", bot " + identity.BotID
}

func checkScopes(scopes []string, r *report) {
	const write = "chat:write"
	switch {
	case scopes == nil:
		r.note(
			"",
			"Slack did not report the token's scopes; it needs %s, and channels:history or groups:history to look up messages after a crash",
			write,
		)
		return
	case !slices.Contains(scopes, write):
		r.fail(
			"add it to the app's scopes, install the app again and set the new token",
			"the token lacks %s: its scopes are %s",
			write,
			strings.Join(scopes, ", "),
		)
	default:
		r.ok("scopes %s", strings.Join(scopes, ", "))
	}
	if !slices.Contains(scopes, "channels:history") && !slices.Contains(scopes, "groups:history") {
		r.note(
			"add channels:history, or groups:history for private channels",
			"the token may not read channels: after a crash in the middle of a post it is posted again, without looking up whether it has arrived",
		)
	}
}

// checkChannels names the channels that are given by name: only in one that is given by its ID can messages
// be looked up from the first event on.
func checkChannels(s settings.Settings, r *report) {
	channels := s.Channels()
	var named []string
	for _, channel := range channels {
		if !slackout.IsChannelID(channel) {
			named = append(named, channel)
		}
	}
	r.ok("%s; the first post shows whether the bot is a member", term.Count(len(channels), "channel"))
	if len(named) > 0 {
		r.note(
			"use the ID, such as C0123, which a channel's details show",
			"%s given by name: after a crash, messages there cannot be looked up until a worker has posted once",
			term.List(named),
		)
	}
}
