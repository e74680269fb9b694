package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"notifier/internal/slackout"
)

// slackAdvice is what to do about what Slack says of a token.
var slackAdvice = map[string]string{
	"invalid_auth":     "SLACK_BOT_TOKEN is no token of a workspace: copy it again from the app's page",
	"token_revoked":    "install the app into the workspace again, and set the new SLACK_BOT_TOKEN",
	"token_expired":    "a token that is rotated cannot be used: turn token rotation off in the app's settings",
	"account_inactive": "the app was removed or its workspace is gone: install it again, and set the new SLACK_BOT_TOKEN",
	"accesslimited":    "Slack takes this token only from other networks: see the app's list of allowed addresses",
	"unknown_method":   "SLACK_API_URL is not the base of Slack's Web API, such as https://slack.com/api/",
	"http_404":         "SLACK_API_URL is not the base of Slack's Web API, such as https://slack.com/api/",
	"invalid_response": "something else answers there: a proxy's page, or another server",
	"tls_error":        "a proxy with a certificate of its own may stand between, or the image has no root certificates",
	"dns_error":        "look at the network, and at HTTPS_PROXY",
	"timeout":          "look at the network, and at HTTPS_PROXY",
}

// checkSlack asks Slack who the token is and what it may do. It posts nothing.
func checkSlack(ctx context.Context, c config, f *findings) {
	poster, err := slackout.New(c.slack)
	if err != nil {
		f.fail("", "%v", err)
		return
	}
	defer poster.Close()
	if c.slack.WebhookURL != "" {
		f.note(`"notifier publish CATEGORY" tries it`, "a webhook cannot be asked without posting, so nothing was looked at")
		f.note("use a bot token to avoid that", "through a webhook nobody can look whether a message has arrived: after a crash in the middle of a post it is posted again")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	who, err := poster.CheckAuth(ctx)
	if err != nil {
		advice := ""
		if refused := (*slackout.Error)(nil); errors.As(err, &refused) {
			advice = slackAdvice[refused.Code]
		}
		f.fail(advice, "%v", err)
		return
	}
	f.ok("workspace %s, user %s%s", who.Team, who.User, botName(who))
	checkScopes(who.Scopes, f)
	checkChannels(c, f)
}

func botName(who slackout.Identity) string {
	if who.BotID == "" {
		return ", which is no bot"
	}
	return ", bot " + who.BotID
}

func checkScopes(scopes []string, f *findings) {
	const write = "chat:write"
	switch {
	case scopes == nil:
		f.note("", "Slack has not told the token's scopes; it needs %s, and channels:history or groups:history to look after a crash", write)
		return
	case !slices.Contains(scopes, write):
		f.fail("add it to the app's scopes, install the app again and set the new token", "the token has no %s: its scopes are %s", write, strings.Join(scopes, ", "))
	default:
		f.ok("scopes %s", strings.Join(scopes, ", "))
	}
	if !slices.Contains(scopes, "channels:history") && !slices.Contains(scopes, "groups:history") {
		f.note("add channels:history, or groups:history for private channels",
			"the token may not read channels: after a crash in the middle of a post it is posted again, without a look whether it is there")
	}
}

// checkChannels names the channels that are given by name: only one that is given by its ID can be looked through from
// the first event on.
func checkChannels(c config, f *findings) {
	channels := slices.AppendSeq([]string{c.slack.Channel}, maps.Values(c.slack.Routes))
	if c.digest > 0 {
		channels = append(channels, c.digestChannel)
	}
	slices.Sort(channels)
	channels = slices.Compact(channels)
	var named []string
	for _, channel := range channels {
		if !slackout.IsChannelID(channel) {
			named = append(named, channel)
		}
	}
	f.ok("%s; whether the bot is in there shows when it posts", counted(len(channels), "channel"))
	if len(named) > 0 {
		f.note("give the ID, such as C0123, which a channel's details show",
			"%s given by name: after a crash it is not looked through before the first post of a worker there", listed(named))
	}
}
