// Package settings reads and checks everything that can be set from outside: the environment variables that
// docs/configuration.md lists, and the files that X_FILE variables name. It is the only place that reads
// them.
//
// It returns values that are ready to use (limits, patterns, TLS configurations, a Redis client that is not
// connected yet), or Problems: everything that is wrong, at once. It does not know what a worker or a command
// does with them, and connects to nothing.
//
// Reading order: environment.go (names and defaults), settings.go (what they become), parse.go, limits.go and
// values.go (the checks), problems.go with hints.go (what is wrong), auth.go, nats.go and natsauth.go (TLS
// and authentication), admin.go, exposed.go (who may read the files), unknown.go (variables that look like
// settings), origin.go (where a value came from, and how it may be shown), status.go (what replicas compare),
// events.go and deadletters.go (what single commands read).
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
	MaxAge          time.Duration // events that are older are dropped; 0: none
	Slack           slackout.Config
	Concurrency     int           // posts in flight at the same time
	BatchSize       int           // events in one script call
	DeadLetter      string        // dead letters go to <it>.<category>
	DeadLetterBytes int64         // how large the dead-letter stream may grow, if a worker creates it
	Dropped         string        // dropped events are republished to <it>.<category>; empty: not
	Digest          time.Duration // between two digests; 0: none
	DigestChannel   string        // empty with a webhook
	AdminAddr       string        // host:port; empty: no admin server
	AdminToken      string        // what it asks for; empty: nothing
	// further names by which it may be asked, such as notifier.example.org or *.example.org
	AdminHosts      []string
	ShutdownTimeout time.Duration
	LogLevel        zapcore.Level
	LogConsole      bool // lines for people instead of JSON
	Exposed         []ExposedFile
	Unknown         []UnknownVariable // 20 at most
}

// Store is what is needed to ask Redis about the limits.
type Store struct {
	Redis     redis.UniversalClient // not connected; to be closed by whoever loaded the settings
	Guard     *ratelimit.Guard      // of that client; nil: it is a command's
	Namespace string
	Limits    ratelimit.Rules
	Dedupe    time.Duration // an id that was sent within it is not sent again
}

// Load reads and checks all settings. Its error is a *Problems.
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

// LoadNATS reads and checks only what a client of NATS needs. Its error is a *Problems.
func LoadNATS() (NATS, error) {
	problems := &Problems{}
	n := parseNATS(Read(problems), problems)
	return n, problems.Err()
}

// LoadStore reads and checks only what is needed to ask Redis about the limits. Its error is a *Problems.
func LoadStore() (Store, error) {
	problems := &Problems{}
	env := Read(problems)
	var store Store
	parseRedis(env, problems, &store, false)
	parseLimits(env, problems, &store)
	if err := problems.Err(); err != nil {
		store.close()
		return Store{}, err
	}
	return store, nil
}

// LoadLimits reads and checks only the limits and the dedupe window; there is no Redis client in what it
// returns. A value in instead replaces that of the variable of this name, which then is not looked at. Its
// error is a *Problems.
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

// LoadSubject reads and checks only which subjects workers read. Its error is a *Problems.
func LoadSubject() (event.Pattern, error) {
	all := &Problems{}
	source := parseSource(Read(all), all)
	return source.Pattern, all.about([]string{"NATS_SUBJECT"}).Err()
}

// LoadAdmin reads and checks only where the admin server of a worker is to be found. It also returns the
// server's token; empty: there is none, or it cannot be read. Its error is a *Problems.
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

// Parse turns the texts into values and notes what is wrong with them. Where there are no problems, those
// noted before included, the caller closes the Redis client; else there is none.
func Parse(env Environment, problems *Problems) Settings {
	s := Settings{NATS: parseNATS(env, problems)}
	parseRedis(env, problems, &s.Store, true)
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
