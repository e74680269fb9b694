package main

import (
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"notifier/internal/consume"
	"notifier/internal/digest"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// config is the settings of a worker, checked. Only environment.go reads the environment.
type config struct {
	nats            natsConfig
	redis           redis.UniversalClient // not connected
	namespace       string
	rules           ratelimit.Rules
	dedupe          time.Duration
	events          event.Rules
	maxAge          time.Duration
	slack           slackout.Config
	concurrency     int
	batchSize       int
	deadLetter      string
	dropped         string        // where dropped events are republished; empty: nowhere
	digest          time.Duration // between two digests; 0: none
	digestChannel   string
	adminAddr       string // empty: none
	shutdownTimeout time.Duration
	logLevel        zapcore.Level
	logConsole      bool
}

// natsConfig is the part that a publisher needs too.
type natsConfig struct {
	url      string // servers, comma separated
	core     bool
	pattern  event.Pattern
	stream   string
	consumer string
	auth     []nats.Option
	tls      *tls.Config // nil: as the URL says
}

// servers is the list of servers as it can be shown.
func (n natsConfig) servers() string { return consume.RedactServers(strings.Split(n.url, ",")) }

// Modes of NATS_MODE.
const (
	modeJetStream = "jetstream"
	modeCore      = "core"
)

// Bounds of numbers and durations.
const (
	longestDuration    = 31 * 24 * time.Hour
	shortestDedupe     = time.Second
	largestEvent       = 64 << 20 // NATS' own upper bound of a payload
	mostConcurrency    = 256
	largestBatch       = 1000
	shortestPost       = 100 * time.Millisecond
	longestPost        = 5 * time.Minute
	shortestShutdown   = time.Second
	shortestDigest     = time.Minute
	longestShutdown    = time.Hour
	longestSubjectPart = 200
)

// loadConfig reads and checks all settings. Its error lists every fault.
func loadConfig() (config, error) {
	f := &faults{}
	c := parseConfig(readEnvironment(f), f)
	return c, f.err()
}

// loadOrigins is loadConfig, and tells where each setting came from.
func loadOrigins() (config, []origin, error) {
	f := &faults{}
	env, origins := readOrigins(f)
	c := parseConfig(env, f)
	return c, origins, f.err()
}

// parseConfig gives the settings a meaning. Whoever gets settings without a fault closes the Redis client.
func parseConfig(env environment, f *faults) config {
	c := config{nats: parseNATS(env, f)}
	parseRedis(env, f, &c)
	parseLimits(env, f, &c)
	parseSlack(env, f, &c)
	parseEvents(env, f, &c)
	parseWorker(env, f, &c)
	if f.err() != nil && c.redis != nil {
		_ = c.redis.Close() // even a client that is not connected has goroutines
		c.redis = nil
	}
	return c
}

// loadNATSConfig reads and checks only what a publisher needs.
func loadNATSConfig() (natsConfig, error) {
	f := &faults{}
	n := parseNATS(readEnvironment(f), f)
	return n, f.err()
}

func parseNATS(env environment, f *faults) natsConfig {
	n := natsConfig{url: env.NATSURL, stream: env.NATSStream, consumer: env.NATSConsumer}
	checkServers(f, env.NATSURL)
	switch env.NATSMode {
	case modeJetStream:
	case modeCore:
		n.core = true
	default:
		f.add("NATS_MODE", "%q, expected jetstream or core", env.NATSMode)
	}
	pattern, err := event.ParsePattern(env.NATSSubject)
	if err != nil {
		f.add("NATS_SUBJECT", "%v", err)
	}
	n.pattern = pattern
	checkName(f, "NATS_STREAM", env.NATSStream)
	checkName(f, "NATS_CONSUMER", env.NATSConsumer)
	n.auth = parseNATSAuth(f, env.NATSCredsFile, env.NATSNKeyFile)
	n.tls = parseTLS(f, "NATS_TLS", env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey)
	return n
}

func parseRedis(env environment, f *faults, c *config) {
	tlsConfig := parseTLS(f, "REDIS_TLS", env.RedisTLSCA, env.RedisTLSCert, env.RedisTLSKey)
	client, err := ratelimit.Open(env.RedisURL, tlsConfig)
	switch {
	case errors.Is(err, ratelimit.ErrURL):
		f.add("REDIS_URL", "is no URL of a Redis, %v", err)
	case err != nil:
		f.add("REDIS_URL", "%v", err)
	}
	c.redis, c.namespace = client, env.RedisNamespace
	if err := ratelimit.CheckNamespace(env.RedisNamespace); err != nil {
		f.add("REDIS_NAMESPACE", "%v", err)
	}
}

func parseLimits(env environment, f *faults, c *config) {
	var err error
	if c.rules.Global, err = ratelimit.ParseLimit(env.LimitGlobal); err != nil {
		f.add("LIMIT_GLOBAL", "%v", err)
	}
	if c.rules.Category, err = ratelimit.ParseLimit(env.LimitCategory); err != nil {
		f.add("LIMIT_CATEGORY", "%v", err)
	}
	if c.rules.Overrides, err = ratelimit.ParseOverrides(env.LimitOverrides); err != nil {
		f.add("LIMIT_OVERRIDES", "%v", err)
	}
	c.dedupe = parseDuration(f, "DEDUPE_WINDOW", env.DedupeWindow, shortestDedupe, longestDuration)
}

func parseSlack(env environment, f *faults, c *config) {
	c.slack = slackout.Config{
		Token: env.SlackBotToken, WebhookURL: env.SlackWebhookURL, APIURL: env.SlackAPIURL, Channel: env.SlackChannel,
	}
	token := env.SlackBotToken != "" || f.unread("SLACK_BOT_TOKEN")
	webhook := env.SlackWebhookURL != "" || f.unread("SLACK_WEBHOOK_URL")
	switch {
	case !token && !webhook:
		f.add("SLACK_BOT_TOKEN", "is not set, nor is SLACK_WEBHOOK_URL; expected one of them: a bot token (xoxb-...) or an incoming webhook")
	case token && webhook:
		f.add("SLACK_WEBHOOK_URL", "is set, and so is SLACK_BOT_TOKEN; expected one of them")
	case token && env.SlackChannel == "" && !f.unread("SLACK_CHANNEL"):
		f.add("SLACK_CHANNEL", "is not set; expected the default channel, which a bot token needs")
	}
	if strings.ContainsFunc(env.SlackBotToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		f.add("SLACK_BOT_TOKEN", "has white space or a character that no token has; expected a bot token (xoxb-...)")
	}
	if env.SlackWebhookURL != "" && !slackout.IsHTTP(env.SlackWebhookURL) {
		f.add("SLACK_WEBHOOK_URL", "is no URL of a webhook; expected https://hooks.slack.com/services/...")
	}
	if env.SlackAPIURL != "" && !slackout.IsHTTP(env.SlackAPIURL) {
		f.add("SLACK_API_URL", "is no http or https URL; expected one such as https://slack.com/api/, or nothing")
	}
	c.slack.Routes = parseRoutes(f, env.SlackRoutes)
	if env.SlackRoutes != "" && webhook {
		f.add("SLACK_ROUTES", "is set beside SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to its one channel")
	}
	switch env.SlackMarkup {
	case "escape":
	case "allow":
		c.slack.AllowMarkup = true
	default:
		f.add("SLACK_MARKUP", "%q, expected escape or allow", env.SlackMarkup)
	}
	c.slack.Timeout = parseDuration(f, "SLACK_TIMEOUT", env.SlackTimeout, shortestPost, longestPost)
	c.concurrency = parseNumber(f, "SEND_CONCURRENCY", env.SendConcurrency, 1, mostConcurrency)
}

func parseEvents(env environment, f *faults, c *config) {
	c.maxAge = parseDuration(f, "EVENT_MAX_AGE", env.EventMaxAge, 0, longestDuration)
	listed := map[string]bool{env.SlackChannel: env.SlackChannel != ""}
	for _, channel := range c.slack.Routes {
		listed[channel] = true
	}
	c.events = event.Rules{
		Pattern:        c.nats.pattern,
		MaxBytes:       parseNumber(f, "EVENT_MAX_BYTES", env.EventMaxBytes, 1, largestEvent),
		ChannelAllowed: func(channel string) bool { return listed[channel] },
		MaxCost:        c.rules.MaxCost,
	}
}

func parseWorker(env environment, f *faults, c *config) {
	c.batchSize = parseNumber(f, "BATCH_SIZE", env.BatchSize, 1, largestBatch)
	c.deadLetter = env.DeadLetterSubject
	checkOutput(f, "DEAD_LETTER_SUBJECT", c.deadLetter, "notify-dead", c.nats.pattern)
	if c.dropped = env.DroppedSubject; c.dropped != "" {
		checkOutput(f, "DROPPED_SUBJECT", c.dropped, "notify-dropped", c.nats.pattern)
		if overlap(c.dropped+".>", c.deadLetter+".>") {
			f.add("DROPPED_SUBJECT", "%q would put dropped events among the dead letters; expected a subject outside DEAD_LETTER_SUBJECT %q", c.dropped, c.deadLetter)
		}
	}
	c.digest = parseDuration(f, "DIGEST_INTERVAL", env.DigestInterval, 0, digest.MaxInterval)
	if c.digest > 0 && c.digest < shortestDigest {
		f.add("DIGEST_INTERVAL", "%q, expected 0 (none) or %s to %s", env.DigestInterval, ratelimit.ShortDuration(shortestDigest), ratelimit.ShortDuration(digest.MaxInterval))
	}
	if c.digestChannel = env.DigestChannel; c.digestChannel == "" {
		c.digestChannel = env.SlackChannel
	} else if strings.ContainsAny(c.digestChannel, " \t\r\n") {
		f.add("DIGEST_CHANNEL", "%q, expected one channel such as C0123 or #alerts", c.digestChannel)
	} else if env.SlackWebhookURL != "" {
		f.add("DIGEST_CHANNEL", "is set beside SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to its one channel")
	}
	c.adminAddr = env.AdminAddr
	if c.adminAddr != "" {
		checkAddr(f, "ADMIN_ADDR", c.adminAddr)
	}
	c.shutdownTimeout = parseDuration(f, "SHUTDOWN_TIMEOUT", env.ShutdownTimeout, shortestShutdown, longestShutdown)
	switch env.LogLevel {
	case "debug", "info", "warn", "error":
		_ = c.logLevel.Set(env.LogLevel) // one of zap's own names
	default:
		f.add("LOG_LEVEL", "%q, expected debug, info, warn or error", env.LogLevel)
	}
	switch env.LogFormat {
	case "json":
	case "console":
		c.logConsole = true
	default:
		f.add("LOG_FORMAT", "%q, expected json or console", env.LogFormat)
	}
}

// parseRoutes reads "errors=C0123,deploys=#deploys".
func parseRoutes(f *faults, text string) map[string]string {
	routes := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return routes
	}
	for _, part := range strings.Split(text, ",") {
		category, channel, _ := strings.Cut(part, "=")
		category, channel = strings.TrimSpace(category), strings.TrimSpace(channel)
		if category == "" || channel == "" {
			f.add("SLACK_ROUTES", "%q, expected CATEGORY=CHANNEL such as errors=C0123", part)
			return nil
		}
		if _, twice := routes[category]; twice {
			f.add("SLACK_ROUTES", "%s is there twice, expected each category once", category)
			return nil
		}
		routes[category] = channel
	}
	return routes
}
