package settings

import (
	"notifier/internal/event"
	"notifier/internal/slackout"
)

// LoadEvents reads and checks only what decides how a worker reads a payload and what it would post: subject,
// sizes, channels, markup and limits. No credentials are needed, and none are checked. Its error is a
// *Problems.
func LoadEvents() (event.Rules, slackout.Config, error) {
	all := &Problems{}
	env := Read(all)
	s := Settings{NATS: parseSource(env, all)}
	parseLimits(env, all, &s.Store)
	parseSlack(env, all, &s)
	parseEvents(env, all, &s)
	problems := all.about([]string{
		"NATS_SUBJECT",
		"EVENT_MAX_BYTES",
		"SLACK_ROUTES",
		"SLACK_MARKUP",
		"SLACK_LINK_HOSTS",
		"LIMIT_GLOBAL",
		"LIMIT_CATEGORY",
		"LIMIT_OVERRIDES",
		"LIMIT_GROUP",
		"LIMIT_GROUP_OVERRIDES",
		"LIMIT_RESERVE",
	})
	return s.Events, s.Slack, problems.Err()
}
