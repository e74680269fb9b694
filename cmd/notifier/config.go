package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// config is the settings of a worker, checked. Only this file and environment.go know the environment.
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
	adminAddr       string // empty: none
	shutdownTimeout time.Duration
	logLevel        zapcore.Level
	logConsole      bool
}

// natsConfig is the part that a publisher needs too.
type natsConfig struct {
	url       string // servers, comma separated
	core      bool
	pattern   event.Pattern
	stream    string
	consumer  string
	credsFile string
	nkeyFile  string
	tls       *tls.Config // nil: as the URL says
}

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
	longestShutdown    = time.Hour
	longestSubjectPart = 200
)

// loadConfig reads and checks all settings. Its error lists every fault.
func loadConfig() (config, error) {
	f := &faults{}
	c := parseConfig(readEnvironment(f), f)
	return c, f.err()
}

func parseConfig(env environment, f *faults) config {
	c := config{nats: parseNATS(env, f)}
	parseRedis(env, f, &c)
	parseLimits(env, f, &c)
	parseSlack(env, f, &c)
	parseEvents(env, f, &c)
	parseWorker(env, f, &c)
	return c
}

// loadNATSConfig reads and checks only what a publisher needs.
func loadNATSConfig() (natsConfig, error) {
	f := &faults{}
	env := readEnvironment(f)
	n := parseNATS(env, f)
	return n, f.err()
}

func parseNATS(env environment, f *faults) natsConfig {
	n := natsConfig{url: env.NATSURL, stream: env.NATSStream, consumer: env.NATSConsumer, credsFile: env.NATSCredsFile, nkeyFile: env.NATSNKeyFile}
	for _, server := range strings.Split(env.NATSURL, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		parsed, err := url.Parse(server)
		if err != nil || parsed.Host == "" || !oneOf(parsed.Scheme, "nats", "tls", "ws", "wss") {
			f.add("NATS_URL", "has a server that is no URL; expected nats://[user:password@]host:port or tls://host:port, several with commas between")
			break
		}
	}
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
	if env.NATSCredsFile != "" && env.NATSNKeyFile != "" {
		f.add("NATS_NKEY_FILE", "is set, and so is NATS_CREDS_FILE; expected one of them")
	}
	checkFile(f, "NATS_CREDS_FILE", env.NATSCredsFile)
	checkFile(f, "NATS_NKEY_FILE", env.NATSNKeyFile)
	n.tls = parseTLS(f, "NATS_TLS", env.NATSTLSCA, env.NATSTLSCert, env.NATSTLSKey)
	return n
}

func parseRedis(env environment, f *faults, c *config) {
	tlsConfig := parseTLS(f, "REDIS_TLS", env.RedisTLSCA, env.RedisTLSCert, env.RedisTLSKey)
	client, err := ratelimit.Open(env.RedisURL, tlsConfig)
	if err != nil {
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
	switch {
	case env.SlackBotToken == "" && env.SlackWebhookURL == "":
		f.add("SLACK_BOT_TOKEN", "is not set, nor is SLACK_WEBHOOK_URL; expected one of them: a bot token (xoxb-...) or an incoming webhook")
	case env.SlackBotToken != "" && env.SlackWebhookURL != "":
		f.add("SLACK_WEBHOOK_URL", "is set, and so is SLACK_BOT_TOKEN; expected one of them")
	case env.SlackBotToken != "" && env.SlackChannel == "":
		f.add("SLACK_CHANNEL", "is not set; expected the default channel, which a bot token needs")
	}
	if strings.ContainsFunc(env.SlackBotToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		f.add("SLACK_BOT_TOKEN", "has white space or a character that no token has; expected a bot token (xoxb-...)")
	}
	if env.SlackWebhookURL != "" && !isHTTP(env.SlackWebhookURL) {
		f.add("SLACK_WEBHOOK_URL", "is no URL of a webhook; expected https://hooks.slack.com/services/...")
	}
	if env.SlackAPIURL != "" && !isHTTP(env.SlackAPIURL) {
		f.add("SLACK_API_URL", "is no http or https URL; expected one such as https://slack.com/api/, or nothing")
	}
	routes, err := parseRoutes(env.SlackRoutes)
	if err != nil {
		f.add("SLACK_ROUTES", "%v", err)
	}
	if len(routes) > 0 && env.SlackWebhookURL != "" {
		f.add("SLACK_ROUTES", "is set beside SLACK_WEBHOOK_URL; expected a bot token: a webhook posts to its one channel")
	}
	c.slack.Routes = routes
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
	if !isPlainSubject(c.deadLetter) {
		f.add("DEAD_LETTER_SUBJECT", "%q, expected a subject without wildcards and white space, of at most %d bytes, such as notify-dead", c.deadLetter, longestSubjectPart)
	} else if _, reads := c.nats.pattern.Category(c.deadLetter + ".x"); reads {
		f.add("DEAD_LETTER_SUBJECT", "%q would be read again through NATS_SUBJECT %q; expected a subject outside it", c.deadLetter, c.nats.pattern)
	}
	c.adminAddr = env.AdminAddr
	if c.adminAddr != "" {
		if _, port, err := net.SplitHostPort(c.adminAddr); err != nil || !isPort(port) {
			f.add("ADMIN_ADDR", "%q, expected host:port such as 127.0.0.1:8080, or nothing for none", c.adminAddr)
		}
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
func parseRoutes(text string) (map[string]string, error) {
	routes := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return routes, nil
	}
	for _, part := range strings.Split(text, ",") {
		category, channel, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || category == "" || channel == "" {
			return nil, errors.New(strconv.Quote(part) + ", expected CATEGORY=CHANNEL such as errors=C0123")
		}
		if _, twice := routes[category]; twice {
			return nil, errors.New(category + " is there twice, expected each category once")
		}
		routes[category] = channel
	}
	return routes, nil
}

// parseTLS reads certificates; nil when none is named.
func parseTLS(f *faults, prefix, ca, cert, key string) *tls.Config {
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			f.add(prefix+"_CA", "%v; expected a readable file with PEM certificates", err)
		} else if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			f.add(prefix+"_CA", "%s has no PEM certificate; expected at least one", ca)
		}
	}
	switch {
	case cert == "" && key == "":
	case cert == "":
		f.add(prefix+"_CERT", "is not set, but %s_KEY is; expected both or none", prefix)
	case key == "":
		f.add(prefix+"_KEY", "is not set, but %s_CERT is; expected both or none", prefix)
	default:
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			f.add(prefix+"_CERT", "%v; expected a PEM certificate and its key in %s_KEY", err, prefix)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func parseDuration(f *faults, variable, text string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		f.add(variable, "%q, expected a duration from %s to %s such as 30s, 10m or 24h", text, least, most)
	}
	return d
}

func parseNumber(f *faults, variable, text string, least, most int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		f.add(variable, "%q, expected a whole number from %d to %d", text, least, most)
	}
	return n
}

func checkFile(f *faults, variable, path string) {
	if path == "" {
		return
	}
	file, err := os.Open(path)
	if err != nil {
		f.add(variable, "%v; expected a readable file", err)
		return
	}
	_ = file.Close() // it was opened for reading only
}

// checkName checks a name of a stream or consumer as the NATS server does.
func checkName(f *faults, variable, name string) {
	if name == "" || len(name) > longestSubjectPart || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`.*>/\`, r)
	}) {
		f.add(variable, `%q, expected a name without white space and . * > / \, of at most %d bytes`, name, longestSubjectPart)
	}
}

func isPlainSubject(subject string) bool {
	if subject == "" || len(subject) > longestSubjectPart || subject[0] == '$' {
		return false
	}
	for _, token := range strings.Split(subject, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}

func isHTTP(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && parsed.Host != "" && oneOf(parsed.Scheme, "http", "https")
}

func isPort(text string) bool {
	port, err := strconv.Atoi(text)
	return err == nil && port >= 0 && port <= 65535
}

func oneOf(text string, allowed ...string) bool {
	for _, one := range allowed {
		if text == one {
			return true
		}
	}
	return false
}
