// Package settings reads and checks the configuration: the environment variables that docs/configuration.md
// lists, and the files that X_FILE variables name. No other package reads them.
//
// It returns values that are ready to use (limits, patterns, TLS configurations, an unconnected Redis
// client), or Problems, which lists every mistake at once. It does not know how a worker or a command uses
// them. Only NATS.Connect connects.
package settings

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// Settings is everything that a worker needs, checked.
type Settings struct {
	NATS            NATS
	Store           Store
	Events          event.Rules
	MaxAge          time.Duration // older events are dropped; zero means no limit
	Slack           slackout.Config
	Concurrency     int           // posts in flight at the same time
	BatchSize       int           // events in one script call
	DeadLetter      string        // dead letters go to <it>.<category>
	DeadLetterBytes int64         // how large the dead-letter stream may grow, if a worker creates it
	Dropped         string        // subject prefix for republished drops; if empty, drops are not republished
	Digest          time.Duration // interval; zero disables digests
	DigestChannel   string        // empty with a webhook
	AdminAddr       string        // host:port; if empty, there is no admin server
	AdminToken      string        // if empty, the admin server accepts every request
	ShutdownTimeout time.Duration
	LogLevel        zapcore.Level
	LogConsole      bool // lines for people instead of JSON
	Exposed         []ExposedFile
	Unknown         []UnknownVariable // 20 at most
}

// Store holds the settings of the limits and a client of their Redis.
type Store struct {
	Redis     redis.UniversalClient // not connected; the caller closes it
	Guard     *ratelimit.Guard      // guards Redis; nil for a command
	Namespace string
	Limits    ratelimit.Rules
	Dedupe    time.Duration // an id that was sent within it is not sent again
}

// LoadWithOrigins is Load, and returns where each setting came from, in the order of docs/configuration.md.
func LoadWithOrigins() (Settings, []Origin, error) {
	problems := &Problems{}
	env, origins := read(problems)
	settings := Parse(env, problems)
	settings.Exposed, settings.Unknown = exposed(origins), unknownIn(origins)
	if problems.Err() != nil { // one of them may be why
		for _, unknown := range settings.Unknown {
			problems.lines = append(problems.lines, unknown.String())
		}
	}
	return settings, origins, problems.Err()
}

// Parse converts the texts to values and adds the invalid ones to problems. If problems is still empty, the
// caller closes the Redis client. Otherwise Parse returns no client.
func Parse(env Environment, problems *Problems) Settings {
	s := Settings{NATS: parseNATS(env, problems)}
	s.Concurrency = parseNumber(problems, "SEND_CONCURRENCY", env.SendConcurrency, 1, mostConcurrency)
	// An invalid number is a problem, and no reason for another one about the URL.
	parseRedis(env, problems, &s.Store, min(max(s.Concurrency, 1), mostConcurrency))
	parseLimits(env, problems, &s.Store)
	parseSlack(env, problems, &s)
	checkNames(problems, s)
	parseEvents(env, problems, &s)
	parseOutputs(env, problems, &s)
	parseWorker(env, problems, &s)
	if problems.Err() != nil {
		s.Store.close()
	}
	return s
}

// close closes the client, if there is one: even one that is not connected has goroutines.
func (s *Store) close() {
	if s.Redis != nil {
		_ = s.Redis.Close() // nothing was written through it
		s.Redis = nil
	}
}

// Channels are the channels that the settings name, each once, sorted; empty with a webhook that names none.
func (s Settings) Channels() []string {
	var channels []string
	if s.Slack.Channel != "" {
		channels = append(channels, s.Slack.Channel)
	}
	for _, channel := range s.Slack.Routes.All() {
		channels = append(channels, channel)
	}
	if s.Digest > 0 && s.DigestChannel != "" {
		channels = append(channels, s.DigestChannel)
	}
	slices.Sort(channels)
	return slices.Compact(channels)
}
