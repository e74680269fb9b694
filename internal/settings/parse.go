package settings

import (
	"errors"
	"strings"
	"time"

	"notifier/internal/consume/feed"
	"notifier/internal/consume/streams"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/digest"
	"notifier/internal/term"
)

// Bounds of numbers and durations.
const (
	longestDuration    = 31 * 24 * time.Hour
	shortestDedupe     = time.Second
	mostConcurrency    = 256
	shortestPost       = 100 * time.Millisecond
	longestPost        = 5 * time.Minute
	shortestShutdown   = time.Second
	longestShutdown    = time.Hour
	shortestDigest     = time.Minute
	longestSubjectPart = 200
)

// Bounds of the dead-letter stream in bytes.
const (
	leastDeadLetters int64 = 1 << 20
	mostDeadLetters  int64 = 1 << 40
)

// maxStreamBytes bounds NATS_STREAM_MAX_BYTES.
const maxStreamBytes int64 = 1 << 50

// LargestEvent is the largest payload in bytes that EVENT_MAX_BYTES allows: NATS' own upper bound.
const LargestEvent = 64 << 20

func parseNATS(env Environment, problems *Problems) NATS {
	checkServers(problems, env.NATSURL)
	n := parseSource(env, problems)
	n.URL = env.NATSURL
	n.Replicas = parseNumber(problems, "NATS_REPLICAS", env.NATSReplicas, 0, streams.MostReplicas)
	n.StreamBytes = parseNumber(problems, feed.SizeSetting, env.NATSStreamMaxBytes, 0, maxStreamBytes)
	n.auth = parseNATSAuth(problems, env.NATSCredsFile, env.NATSNKeyFile)
	n.tls = parseTLS(problems, "NATS_TLS", env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey)
	if n.tls != nil {
		n.auth.useTLS(n.tls, env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey)
	}
	n.auth.useURL(fileOf("NATS_URL"), env.NATSURL)
	return n
}

// parseSource reads the stream, the consumer and the subject, without the connection settings.
func parseSource(env Environment, problems *Problems) NATS {
	n := NATS{Stream: env.NATSStream, Consumer: env.NATSConsumer}
	if env.NATSMode != "" && env.NATSMode != "jetstream" { // v0.1.0 had core, too
		problems.Add(
			"NATS_MODE",
			"%q: events are read through JetStream alone, because core loses what a worker holds that dies; expected no such variable",
			env.NATSMode,
		)
	}
	var err error
	n.Pattern, err = event.ParsePattern(env.NATSSubject)
	switch {
	case err != nil:
		problems.Add("NATS_SUBJECT", "%v", err)
	case strings.ContainsAny(env.NATSSubject, ",;"):
		problems.Add("NATS_SUBJECT", "%q looks like several subjects, expected one", env.NATSSubject)
	case strings.TrimLeft(env.NATSSubject, "*.") == ">":
		problems.Add(
			"NATS_SUBJECT",
			"%q takes every subject, also those of dead letters; expected a prefix, such as notify.>",
			env.NATSSubject,
		)
		n.Pattern = event.Pattern{} // no other subject can be outside it
	}
	checkName(problems, "NATS_STREAM", env.NATSStream)
	checkName(problems, "NATS_CONSUMER", env.NATSConsumer)
	return n
}

// parseRedis opens the client of a worker that makes up to posts concurrent posts. If posts is zero, it opens that
// of a command.
func parseRedis(env Environment, problems *Problems, s *Store, posts int) {
	tlsConfig := parseTLS(problems, "REDIS_TLS", env.RedisTLSCA, env.RedisTLSCert, env.RedisTLSKey)
	var err error
	if posts > 0 {
		s.Redis, s.Guard, err = ratelimit.OpenGuarded(env.RedisURL, tlsConfig, posts)
	} else {
		s.Redis, err = ratelimit.Open(env.RedisURL, tlsConfig)
	}
	switch {
	case errors.Is(err, ratelimit.ErrInvalidURL):
		problems.Add("REDIS_URL", "is not a Redis URL, %v", err)
	case err != nil:
		problems.Add("REDIS_URL", "%v", err)
	default:
		checkRedisURL(problems, env.RedisURL)
	}
	s.Namespace = env.RedisNamespace
	if err := ratelimit.ValidateNamespace(env.RedisNamespace); err != nil {
		problems.Add("REDIS_NAMESPACE", "%v", err)
	}
}

func parseSlack(env Environment, problems *Problems, s *Settings) {
	s.Slack = slackout.Config{
		Token:      env.SlackBotToken,
		WebhookURL: env.SlackWebhookURL,
		APIURL:     env.SlackAPIURL,
		Channel:    env.SlackChannel,
	}
	checkSlackAccess(env, problems)
	s.Slack.Routes = parseRoutes(problems, env.SlackRoutes)
	if env.SlackRoutes != "" && hasWebhook(env, problems) {
		problems.Add(
			"SLACK_ROUTES",
			"is set together with SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to one fixed channel",
		)
	}
	switch env.SlackMarkup {
	case "escape":
	case "allow":
		s.Slack.AllowMarkup = true
	default:
		problems.Add("SLACK_MARKUP", "%q, expected escape or allow", env.SlackMarkup)
	}
	s.Slack.Timeout = parseDuration(problems, "SLACK_TIMEOUT", env.SlackTimeout, shortestPost, longestPost)
	var err error
	if s.Store.Limits.Pace, err = ratelimit.ParsePace(env.SlackPace); err != nil {
		problems.Add("SLACK_PACE", "%v", err)
	}
}

// checkSlackAccess checks that exactly one of bot token and webhook is set, and that the other Slack settings
// fit it.
func checkSlackAccess(env Environment, problems *Problems) {
	token := env.SlackBotToken != "" || problems.unreadable("SLACK_BOT_TOKEN")
	webhook := hasWebhook(env, problems)
	switch {
	case !token && !webhook:
		problems.Add(
			"SLACK_BOT_TOKEN",
			"is not set, nor is SLACK_WEBHOOK_URL; expected one of them: a bot token (xoxb-...) or an incoming webhook",
		)
	case token && webhook:
		problems.Add("SLACK_WEBHOOK_URL", "is set, and so is SLACK_BOT_TOKEN; expected only one of them")
	case token && env.SlackChannel == "" && !problems.unreadable("SLACK_CHANNEL"):
		problems.Add("SLACK_CHANNEL", "is not set; expected the default channel, which a bot token needs")
	}
	if strings.ContainsFunc(env.SlackBotToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems.Add(
			"SLACK_BOT_TOKEN",
			"contains white space or a character that no token has; expected a bot token (xoxb-...)",
		)
	}
	if !mayBeBots(env.SlackBotToken) && !problems.variables["SLACK_BOT_TOKEN"] {
		problems.Add("SLACK_BOT_TOKEN", "is no bot token; expected one that begins with xoxb-")
	}
	problems.addChannel("SLACK_CHANNEL", "", env.SlackChannel)
	if env.SlackWebhookURL != "" && !slackout.IsHTTP(env.SlackWebhookURL) {
		problems.Add("SLACK_WEBHOOK_URL", "is not a webhook URL; expected https://hooks.slack.com/services/...")
	}
	if env.SlackAPIURL != "" && !slackout.IsHTTP(env.SlackAPIURL) {
		problems.Add(
			"SLACK_API_URL",
			"is not an http or https URL; expected one such as https://slack.com/api/, or nothing",
		)
	}
}

// hasWebhook reports whether there is one, known or in a file that could not be read.
func hasWebhook(env Environment, problems *Problems) bool {
	return env.SlackWebhookURL != "" || problems.unreadable("SLACK_WEBHOOK_URL")
}

func parseEvents(env Environment, problems *Problems, s *Settings) {
	s.MaxAge = parseDuration(problems, "EVENT_MAX_AGE", env.EventMaxAge, 0, longestDuration)
	listed := map[string]bool{env.SlackChannel: env.SlackChannel != ""}
	for _, channel := range s.Slack.Routes.All() {
		listed[channel] = true
	}
	s.Events = event.Rules{
		Pattern:        s.NATS.Pattern,
		MaxBytes:       parseNumber(problems, "EVENT_MAX_BYTES", env.EventMaxBytes, 1, LargestEvent),
		ChannelAllowed: func(channel string) bool { return listed[channel] },
		CheckCost:      s.Store.Limits.CheckCost,
	}
	s.BatchSize = parseNumber(problems, "BATCH_SIZE", env.BatchSize, 1, ratelimit.MaxBatch)
}

// defaultDeadLetter differs from stream to stream: on one server no two streams may take the same subject,
// and so no two dead-letter streams either. A name that no stream can have is not this setting's problem.
func defaultDeadLetter(stream string) string {
	if !isName(stream) {
		return "notify-dead"
	}
	return strings.ToLower(stream) + "-dead"
}

// parseOutputs reads where else than to Slack's channels for events something goes.
func parseOutputs(env Environment, problems *Problems, s *Settings) {
	if s.DeadLetter = env.DeadLetterSubject; s.DeadLetter == "" {
		s.DeadLetter = defaultDeadLetter(env.NATSStream)
	}
	checkOutput(problems, "DEAD_LETTER_SUBJECT", s.DeadLetter, "notify-dead", s.NATS.Pattern)
	s.DeadLetterBytes = parseNumber(
		problems,
		"DEAD_LETTER_MAX_BYTES",
		env.DeadLetterMaxBytes,
		leastDeadLetters,
		mostDeadLetters,
	)
	if s.Dropped = env.DroppedSubject; s.Dropped != "" {
		checkOutput(problems, "DROPPED_SUBJECT", s.Dropped, "notify-dropped", s.NATS.Pattern)
		if event.Overlap(s.Dropped+".>", s.DeadLetter+".>") {
			problems.Add(
				"DROPPED_SUBJECT",
				"%q would put dropped events among the dead letters; expected a subject outside DEAD_LETTER_SUBJECT %q",
				s.Dropped,
				s.DeadLetter,
			)
		}
	}
	s.Digest = parseDuration(problems, "DIGEST_INTERVAL", env.DigestInterval, 0, digest.MaxInterval)
	if s.Digest > 0 && s.Digest < shortestDigest {
		problems.Add(
			"DIGEST_INTERVAL",
			"%q, expected 0 (none) or %s to %s",
			env.DigestInterval,
			term.ShortDuration(shortestDigest),
			term.ShortDuration(digest.MaxInterval),
		)
	}
	if s.DigestChannel = env.DigestChannel; s.DigestChannel == "" {
		s.DigestChannel = env.SlackChannel
		return
	}
	problems.addChannel("DIGEST_CHANNEL", "", s.DigestChannel)
	if env.SlackWebhookURL != "" && !problems.variables["DIGEST_CHANNEL"] {
		problems.Add("DIGEST_CHANNEL",
			"is set together with SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to one fixed channel")
	}
}

func parseWorker(env Environment, problems *Problems, s *Settings) {
	parseAdmin(env, problems, s)
	s.ShutdownTimeout = parseDuration(
		problems,
		"SHUTDOWN_TIMEOUT",
		env.ShutdownTimeout,
		shortestShutdown,
		longestShutdown,
	)
	switch env.LogLevel {
	case "debug", "info", "warn", "error":
		_ = s.LogLevel.Set(env.LogLevel) // one of zap's own names
	default:
		problems.Add("LOG_LEVEL", "%q, expected debug, info, warn or error", env.LogLevel)
	}
	switch env.LogFormat {
	case "json":
	case "console":
		s.LogConsole = true
	default:
		problems.Add("LOG_FORMAT", "%q, expected json or console", env.LogFormat)
	}
}
