package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"notifier/internal/event"
	"notifier/internal/settings"
	"notifier/internal/slackout"
)

// maxChannels bounds the requests for histories. Slack allows about 50 a minute.
const maxChannels = 10

// slackCheck is the state of the checks of Slack, which run one at a time.
type slackCheck struct {
	settings settings.Settings
	poster   *slackout.Poster // nil before the first check
	scopes   []string         // nil if Slack does not list them
}

func slackGroup(s settings.Settings) group {
	c := &slackCheck{settings: s}
	end := func() {
		if c.poster != nil {
			c.poster.Close()
		}
	}
	checks := []check{
		{"slack/proxy", c.checkProxy},
		{"slack", c.authenticate},
		{"slack/scopes", c.checkScopes},
		{"slack/channels", c.checkChannels},
	}
	return group{checks, end}
}

// checkProxy shows the proxy that posts go through. Without one there is no row.
func (c *slackCheck) checkProxy(context.Context) []Row {
	poster, err := slackout.New(c.settings.Slack)
	if err != nil {
		return stop("%v", err)
	}
	c.poster = poster
	if proxy := poster.Proxy(); proxy != "" {
		return one(OK, "%s", proxy)
	}
	return nil
}

func (c *slackCheck) webhook() bool { return c.settings.Slack.WebhookURL != "" }

func (c *slackCheck) authenticate(ctx context.Context) []Row {
	if c.webhook() {
		const text = `only a post can check a webhook: "notifier publish CATEGORY TEXT"`
		if host := c.settings.Slack.ForeignHost(); host != "" {
			return one(Skip, `%s; %s is not Slack's host, so check that it replies "ok" as Slack does`, text, host)
		}
		return one(Skip, text)
	}
	identity, err := c.poster.CheckAuth(ctx)
	if err != nil {
		return stop("%s", advised(err, slackAdvice(err)))
	}
	c.scopes = identity.Scopes
	return one(OK, "workspace %s, user %s", identity.Team, identity.User)
}

func (c *slackCheck) has(scope string) bool { return slices.Contains(c.scopes, scope) }

func (c *slackCheck) checkScopes(context.Context) []Row {
	listed := strings.Join(c.scopes, ", ")
	switch {
	case c.webhook():
		return nil
	case c.scopes == nil:
		return one(Skip, "not listed by Slack; chat:write is needed")
	case !c.has("chat:write"):
		return one(Fail, "%s; add chat:write to the app, install it again and set the new token", listed)
	case !c.has("channels:history") && !c.has("groups:history"):
		return one(OK, "%s; without channels:history (private channels: groups:history) a post that a crash "+
			"interrupts is repeated", listed)
	}
	return one(OK, "%s", listed)
}

// checkChannels requests the history of each channel that is given by ID. Slack refuses it if the bot is not
// a member. Without a scope to read histories, membership is unknown.
func (c *slackCheck) checkChannels(ctx context.Context) (rows []Row) {
	if c.webhook() {
		return nil
	}
	channels := c.settings.Channels()
	var unknown []string
	for i, channel := range channels {
		code := ""
		if i < maxChannels && slackout.IsChannelID(channel) {
			code = c.historyCode(ctx, channel)
		}
		switch {
		case code == "channel_not_found":
			rows = append(rows, one(Fail, "%s: not found; check the ID, or invite the bot to it", channel)...)
		case code == "not_in_channel" && c.scopes != nil && !c.has("chat:write.public"):
			rows = append(rows, one(Fail, "%s: not a member; invite the bot, or add chat:write.public", channel)...)
		case code != "ok":
			unknown = append(unknown, channel)
		}
	}
	if len(unknown) > 0 {
		return append(rows, one(Skip, "%s: unknown before the first post; IDs (C0123) and channels:history help",
			strings.Join(unknown, ", "))...)
	}
	if len(rows) == 0 {
		return one(OK, "the bot is a member of %s", strings.Join(channels, ", "))
	}
	return rows
}

// historyCode returns "ok" if the bot may read the channel, Slack's code or another word if the history is
// unavailable, and "" after any other failure.
func (c *slackCheck) historyCode(ctx context.Context, channel string) string {
	_, _, err := c.poster.Find(ctx, event.Event{ID: "check", Channel: channel, Published: time.Now()})
	if err == nil {
		return "ok"
	}
	if !errors.Is(err, slackout.ErrHistoryUnavailable) { // its text may end in Slack's words
		return ""
	}
	text := err.Error()
	return text[strings.LastIndexByte(text, ' ')+1:]
}
