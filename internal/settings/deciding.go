package settings

import (
	"fmt"

	"notifier/internal/snapshot"
	"notifier/internal/status/config"
)

// Deciding returns the settings that the status evaluates.
func (s Settings) Deciding() config.Deciding {
	return config.Deciding{
		Rules: s.Store.Limits, Dedupe: s.Store.Dedupe, Channel: s.Slack.Channel, Routes: s.Slack.Routes,
		Subject: s.NATS.Pattern,
	}
}

// Snapshot returns the settings for a replica's snapshot. Settings in which replicas may well differ, such as
// addresses, files and concurrency, are not in its hash.
func (s Settings) Snapshot() snapshot.Settings {
	others := fmt.Sprintf("%q %q %d %t %q %q %s %q %s %s", s.NATS.Stream, s.NATS.Consumer, s.Events.MaxBytes,
		s.Slack.AllowMarkup, s.DeadLetter, s.Dropped, s.Digest, s.DigestChannel, s.MaxAge, s.Store.Limits.Pace)
	return s.Deciding().Snapshot(others)
}

// configVariables are the variables that LoadDeciding reads and LoadStore does not.
var configVariables = []string{
	"NATS_MODE", "NATS_SUBJECT", "NATS_STREAM", "NATS_CONSUMER",
	"SLACK_CHANNEL", "SLACK_ROUTES",
}

// LoadDeciding is LoadStore, and returns the settings that the status evaluates. It reads neither secrets nor
// how to connect to NATS and Slack.
func LoadDeciding() (Store, config.Deciding, error) {
	all := &Problems{}
	env := Read(all)
	problems := all.about(append(storeVariables(&env), configVariables...))
	s := Settings{NATS: parseSource(env, problems)}
	parseRedis(env, problems, &s.Store, 0)
	parseLimits(env, problems, &s.Store)
	s.Slack.Channel, s.Slack.Routes = env.SlackChannel, parseRoutes(problems, env.SlackRoutes)
	if err := problems.Err(); err != nil {
		s.Store.close()
		return Store{}, config.Deciding{}, err
	}
	return s.Store, s.Deciding(), nil
}

// storeVariables are the variables that LoadStore reads.
func storeVariables(env *Environment) []string {
	variables := []string{"REDIS_URL", "REDIS_NAMESPACE", "REDIS_TLS_CA", "REDIS_TLS_CERT", "REDIS_TLS_KEY"}
	for variable := range limitVariables(env) {
		variables = append(variables, variable)
	}
	return variables
}
