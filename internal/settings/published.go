package settings

import "notifier/internal/published"

// Published is what a worker with these settings shows to others of them.
func (s Settings) Published() published.Settings {
	return published.Settings{
		Limits: s.Store.Limits, Dedupe: s.Store.Dedupe, MaxAge: s.MaxAge, Channel: s.Slack.Channel, Routes: s.Slack.Routes,
		Stream: s.NATS.Stream, Consumer: s.NATS.Consumer, Subject: s.NATS.Pattern,
	}
}

// Published is the part of it about limits. The rest is not known.
func (s Store) Published() published.Settings {
	return published.Settings{Limits: s.Limits, Dedupe: s.Dedupe}
}

// publishedVariables are what LoadPublished reads in addition to what LoadStore reads.
var publishedVariables = []string{
	"NATS_MODE", "NATS_SUBJECT", "NATS_STREAM", "NATS_CONSUMER", "SLACK_CHANNEL", "SLACK_ROUTES", "SLACK_PACE", "EVENT_MAX_AGE",
}

// LoadPublished is LoadStore, and returns what a worker with these settings would show to others. It reads neither secrets nor
// how to connect to NATS and Slack.
func LoadPublished() (Store, published.Settings, error) {
	all := &Problems{}
	env := Read(all)
	problems := all.about(append(storeVariables(&env), publishedVariables...))
	s := Settings{NATS: parseSource(env, problems)}
	parseRedis(env, problems, &s.Store, false)
	parseLimits(env, problems, &s.Store)
	parsePace(env, problems, &s.Store)
	s.Slack.Channel, s.Slack.Routes = env.SlackChannel, parseRoutes(problems, env.SlackRoutes)
	s.MaxAge = parseMaxAge(env, problems)
	if err := problems.Err(); err != nil {
		s.Store.close()
		return Store{}, published.Settings{}, err
	}
	return s.Store, s.Published(), nil
}

// storeVariables are what LoadStore reads.
func storeVariables(env *Environment) []string {
	variables := []string{"REDIS_URL", "REDIS_NAMESPACE", "REDIS_TLS_CA", "REDIS_TLS_CERT", "REDIS_TLS_KEY"}
	for variable := range limitVariables(env) {
		variables = append(variables, variable)
	}
	return variables
}
