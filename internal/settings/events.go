package settings

import (
	"notifier/internal/event"
	"notifier/internal/slackout"
)

// LoadEvents reads and checks only the settings for decoding and rendering an event: subject, sizes,
// channels, markup and limits. It neither needs nor checks credentials. Errors are *Problems.
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
		"LIMIT_GLOBAL",
		"LIMIT_CATEGORY",
		"LIMIT_OVERRIDES",
		"LIMIT_GROUP",
		"LIMIT_GROUP_OVERRIDES",
		"LIMIT_RESERVE",
	})
	return s.Events, s.Slack, problems.Err()
}
