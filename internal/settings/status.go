package settings

import (
	"fmt"

	"notifier/internal/status"
)

// StatusConfig is the part of the settings that decides about events. What may well be different in each
// replica is not in it: addresses, files, how much is done at once.
func (s Settings) StatusConfig() status.Config {
	config := s.Store.StatusConfig()
	config.MaxAge, config.Channel, config.Routes = s.MaxAge, s.Slack.Channel, s.Slack.Routes
	config.Stream, config.Consumer, config.Subject = s.NATS.Stream, s.NATS.Consumer, s.NATS.Pattern
	config.Others = fmt.Sprintln(
		s.Events.MaxBytes, s.Slack.AllowMarkup, s.Slack.LinkHosts, s.Dropped, s.Digest, s.DigestChannel,
	)
	return config
}

// StatusConfig is the part of it about limits. The rest is not known.
func (s Store) StatusConfig() status.Config {
	return status.Config{Limits: s.Limits, Dedupe: s.Dedupe}
}

// configVariables are what LoadStatusConfig reads in addition to what LoadStore reads.
var configVariables = []string{
	"NATS_MODE", "NATS_SUBJECT", "NATS_STREAM", "NATS_CONSUMER",
	"SLACK_CHANNEL", "SLACK_ROUTES", "SLACK_PACE", "EVENT_MAX_AGE",
}

// LoadStatusConfig is LoadStore, and returns the part of the settings that a status depends on. It reads
// neither secrets nor how to connect to NATS and Slack.
func LoadStatusConfig() (Store, status.Config, error) {
	all := &Problems{}
	env := Read(all)
	problems := all.about(append(storeVariables(&env), configVariables...))
	s := Settings{NATS: parseSource(env, problems)}
	parseRedis(env, problems, &s.Store, false)
	parseLimits(env, problems, &s.Store)
	parsePace(env, problems, &s.Store)
	s.Slack.Channel, s.Slack.Routes = env.SlackChannel, parseRoutes(problems, env.SlackRoutes)
	s.MaxAge = parseMaxAge(env, problems)
	if err := problems.Err(); err != nil {
		s.Store.close()
		return Store{}, status.Config{}, err
	}
	return s.Store, s.StatusConfig(), nil
}

// storeVariables are what LoadStore reads.
func storeVariables(env *Environment) []string {
	variables := []string{"REDIS_URL", "REDIS_NAMESPACE", "REDIS_TLS_CA", "REDIS_TLS_CERT", "REDIS_TLS_KEY"}
	for variable := range limitVariables(env) {
		variables = append(variables, variable)
	}
	return variables
}
