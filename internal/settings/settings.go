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

// Load reads and checks all settings. Errors are *Problems.
func Load() (Settings, error) {
	settings, _, err := LoadWithOrigins()
	return settings, err
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

// LoadNATS reads and checks only the settings of a NATS client. Errors are *Problems.
func LoadNATS() (NATS, error) {
	problems := &Problems{}
	n := parseNATS(Read(problems), problems)
	return n, problems.Err()
}

// LoadStore reads and checks only the settings of Store. Errors are *Problems.
func LoadStore() (Store, error) {
	problems := &Problems{}
	env := Read(problems)
	var store Store
	parseRedis(env, problems, &store, 0)
	parseLimits(env, problems, &store)
	if err := problems.Err(); err != nil {
		store.close()
		return Store{}, err
	}
	return store, nil
}

// LoadLimits reads and checks only the limits and the dedupe window, and returns no Redis client. A value in
// instead replaces the variable of this name, which is then ignored. Errors are *Problems.
func LoadLimits(instead map[string]string) (Store, error) {
	all := &Problems{}
	env := Read(all)
	var variables []string
	for variable, field := range limitVariables(&env) {
		if value, replaced := instead[variable]; replaced {
			*field = value
		} else {
			variables = append(variables, variable)
		}
	}
	problems := all.about(variables)
	problems.judge(env)
	var store Store
	parseLimits(env, problems, &store)
	return store, problems.Err()
}

// LoadSubject reads and checks only which subjects workers read. Errors are *Problems.
func LoadSubject() (event.Pattern, error) {
	all := &Problems{}
	source := parseSource(Read(all), all)
	return source.Pattern, all.about([]string{"NATS_SUBJECT"}).Err()
}

// LoadAdmin reads and checks only the address of a worker's admin server. It also returns the server's token,
// or "" if the token is unset or unreadable. Errors are *Problems.
func LoadAdmin() (addr, token string, err error) {
	all := &Problems{}
	env := Read(all)
	problems := all.about([]string{"ADMIN_ADDR"})
	if addr = env.AdminAddr; problems.unreadable("ADMIN_ADDR") {
		return "", "", problems.Err()
	}
	if addr == "" {
		problems.Add("ADMIN_ADDR", "is empty, so there is no admin server to ask; expected host:port")
	} else {
		checkAddr(problems, "ADMIN_ADDR", addr)
	}
	if isAdminToken(env.AdminToken) {
		token = env.AdminToken
	}
	return addr, token, problems.Err()
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
