// Package settings reads and checks the configuration: the environment variables that docs/configuration.md
// lists, and the files that X_FILE variables name. No other package reads them.
//
// A setting is one field with tags:
//
//	envconfig  the variable
//	default    the text that an unset variable stands for
//	group      the group, which commands name in Load
//	range      bounds of a number or duration, "1..256"; "0|1m..24h" allows zero, too
//	enum       the words of a choice; a bool is true for the second one
//	kind       the check of a text, see kinds.go
//	secret     how the value is shown: never, servers, redis, url; file marks the path of a secret
//	hash       "true" if workers with different values treat events differently
//
// envconfig fills texts, one parser converts them by the type of their fields, and checks of several settings
// follow. Load reports all problems at once. Only NATS.Connect connects.
package settings

import (
	"crypto/x509"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zapcore"

	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/snapshot"
	"notifier/internal/status/config"
)

// Groups of settings, for Load.
const (
	GroupNATS   = "nats"
	GroupRedis  = "redis"
	GroupLimits = "limits"
	GroupSlack  = "slack"
	GroupWorker = "worker"
	GroupAdmin  = "admin"
)

// LargestEvent is the largest payload in bytes that EVENT_MAX_BYTES allows: NATS' own upper bound.
const LargestEvent = 64 << 20

// Settings holds all settings, checked.
type Settings struct {
	NATS   NATS
	Store  Store
	Events event.Rules // made of other settings

	// MaxAge of zero means no limit.
	MaxAge   time.Duration `envconfig:"EVENT_MAX_AGE" default:"0" range:"0|1s..744h" group:"worker" hash:"true"`
	MaxBytes int           `envconfig:"EVENT_MAX_BYTES" default:"65536" range:"1..67108864" group:"worker" hash:"true"`

	Slack slackout.Config // see slackSettings

	// Concurrency bounds the posts in flight.
	Concurrency int `envconfig:"SEND_CONCURRENCY" default:"8" range:"1..256" group:"worker"`
	BatchSize   int `envconfig:"BATCH_SIZE" default:"512" range:"1..1000" group:"worker"`

	// DeadLetter is a subject prefix, made of the stream's name if unset.
	DeadLetter      string `envconfig:"DEAD_LETTER_SUBJECT" kind:"subject" group:"worker" hash:"true"`
	DeadLetterBytes int64  `envconfig:"DEAD_LETTER_MAX_BYTES" default:"268435456" range:"1048576..1099511627776" group:"worker"`

	// Dropped is a subject prefix. If it is empty, drops are not republished.
	Dropped string `envconfig:"DROPPED_SUBJECT" kind:"subject" group:"worker" hash:"true"`

	Digest        time.Duration `envconfig:"DIGEST_INTERVAL" default:"0" range:"0|1m..24h" group:"worker" hash:"true"`
	DigestChannel string        `envconfig:"DIGEST_CHANNEL" kind:"channel" group:"worker" hash:"true"`

	// AdminAddr is host:port. If it is empty, there is no admin server.
	AdminAddr string `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8080" kind:"addr" group:"admin" empty:"none"`

	// AdminToken may be empty; then the admin server accepts every request.
	AdminToken string `envconfig:"ADMIN_TOKEN" kind:"admin-token" group:"admin" secret:"never"`

	ShutdownTimeout time.Duration `envconfig:"SHUTDOWN_TIMEOUT" default:"25s" range:"1s..1h" group:"worker"`
	LogLevel        zapcore.Level `envconfig:"LOG_LEVEL" default:"info" enum:"debug,info,warn,error" group:"worker"`
	LogConsole      bool          `envconfig:"LOG_FORMAT" default:"json" enum:"json,console" group:"worker"`

	Exposed []string // secret files that other users may read or write; one sentence each
	Unknown []string // variables that begin like a setting and are none; one sentence each, 20 at most
}

// NATS holds the settings of a NATS client.
type NATS struct {
	// URL lists servers with commas between. It can contain passwords; show Servers.
	URL     string        `envconfig:"NATS_URL" default:"nats://127.0.0.1:4222" kind:"servers" group:"nats" secret:"servers"`
	Pattern event.Pattern `envconfig:"NATS_SUBJECT" default:"notify.>" group:"nats"`
	Stream  string        `envconfig:"NATS_STREAM" default:"NOTIFY" kind:"name" group:"nats" hash:"true"`

	// StreamBytes bounds the stream if a worker creates it. Zero means no bound.
	StreamBytes int64  `envconfig:"NATS_STREAM_MAX_BYTES" default:"0" range:"0..1125899906842624" group:"nats"`
	Consumer    string `envconfig:"NATS_CONSUMER" default:"notifier" kind:"name" group:"nats" hash:"true"`

	// Replicas is the number of replicas of a new stream. Zero means three in a cluster of three servers or
	// more, else one.
	Replicas int `envconfig:"NATS_REPLICAS" default:"0" range:"0..5" group:"nats"`

	Creds string `envconfig:"NATS_CREDS_FILE" kind:"creds" group:"nats" secret:"file"`
	NKey  string `envconfig:"NATS_NKEY_FILE" kind:"seed" group:"nats" secret:"file"`
	CA    string `envconfig:"NATS_TLS_CA" kind:"ca" group:"nats"`
	Cert  string `envconfig:"NATS_TLS_CERT" kind:"cert" group:"nats"`
	Key   string `envconfig:"NATS_TLS_KEY" kind:"key" group:"nats" secret:"file"`
}

// Store holds the settings of the limits and a client of their Redis.
type Store struct {
	URL       string `envconfig:"REDIS_URL" default:"redis://127.0.0.1:6379/0" kind:"redis" group:"redis" secret:"redis"`
	Namespace string `envconfig:"REDIS_NAMESPACE" default:"notifier" kind:"namespace" group:"redis"`
	CA        string `envconfig:"REDIS_TLS_CA" kind:"ca" group:"redis"`
	Cert      string `envconfig:"REDIS_TLS_CERT" kind:"cert" group:"redis"`
	Key       string `envconfig:"REDIS_TLS_KEY" kind:"key" group:"redis" secret:"file"`

	Redis  redis.UniversalClient // not connected; the caller closes it
	Guard  *ratelimit.Guard      // guards Redis; nil for a command
	Limits ratelimit.Rules       // see limitSettings

	// Dedupe bounds the time for which an id that was sent is not sent again.
	Dedupe time.Duration `envconfig:"DEDUPE_WINDOW" default:"24h" range:"1s..744h" group:"limits"`
}

// limitSettings is ratelimit.Rules with tags.
type limitSettings struct {
	Global         ratelimit.Limit                `envconfig:"LIMIT_GLOBAL" default:"100/30m" group:"limits"`
	Category       ratelimit.Limit                `envconfig:"LIMIT_CATEGORY" default:"10/30m" group:"limits"`
	Overrides      pattern.Table[ratelimit.Limit] `envconfig:"LIMIT_OVERRIDES" group:"limits"`
	Group          ratelimit.Limit                `envconfig:"LIMIT_GROUP" group:"limits"`
	GroupOverrides map[string]ratelimit.Limit     `envconfig:"LIMIT_GROUP_OVERRIDES" group:"limits"`
	Reserve        map[string]int                 `envconfig:"LIMIT_RESERVE" group:"limits"`
	Pace           ratelimit.Tier                 `envconfig:"SLACK_PACE" default:"10/10s" group:"slack" hash:"true"`
}

// slackSettings is slackout.Config with tags.
type slackSettings struct {
	Token       string                `envconfig:"SLACK_BOT_TOKEN" kind:"bot-token" group:"slack" secret:"never"`
	WebhookURL  string                `envconfig:"SLACK_WEBHOOK_URL" kind:"webhook" group:"slack" secret:"never"`
	APIURL      string                `envconfig:"SLACK_API_URL" kind:"api" group:"slack" secret:"url"`
	Channel     string                `envconfig:"SLACK_CHANNEL" kind:"channel" group:"slack"`
	Routes      pattern.Table[string] `envconfig:"SLACK_ROUTES" group:"slack"`
	AllowMarkup bool                  `envconfig:"SLACK_MARKUP" default:"escape" enum:"escape,allow" group:"slack" hash:"true"`
	Timeout     time.Duration         `envconfig:"SLACK_TIMEOUT" default:"10s" range:"100ms..5m" group:"slack"`
	RootCAs     *x509.CertPool        // not a setting: see slackout.Config
}

// variablesIn lists the settings of a struct, which is passed by pointer, in the order of its fields.
func variablesIn(pointer any) []variable {
	var list []variable
	fields := reflect.ValueOf(pointer).Elem()
	for i := range fields.NumField() {
		tag, field := fields.Type().Field(i).Tag, fields.Field(i)
		switch part := field.Addr().Interface().(type) {
		case *NATS, *Store:
			list = append(list, variablesIn(part)...)
		case *ratelimit.Rules:
			list = append(list, variablesIn((*limitSettings)(part))...)
		case *slackout.Config:
			list = append(list, variablesIn((*slackSettings)(part))...)
		default:
			if name := tag.Get("envconfig"); name != "" {
				list = append(list, variable{Variable{name, tag.Get("default")}, tag, field})
			}
		}
	}
	return list
}

// Variable is a setting by name, with the text that it stands for if it is unset.
type Variable struct{ Name, Default string }

// Variables lists all settings.
func Variables() []Variable {
	var list []Variable
	for _, v := range variablesIn(&Settings{}) {
		list = append(list, v.Variable)
	}
	return list
}

// Load reads and checks the settings that a command needs: groups, or single variables by name. Without needs
// it loads all. Other settings have their defaults: Load neither opens their files nor reports their
// problems. Errors are *Problems. If GroupRedis is loaded, the caller closes Store.Redis.
func Load(needs ...string) (Settings, error) {
	if len(needs) == 0 {
		s, _, err := LoadWithOrigins()
		return s, err
	}
	return LoadWith(nil, needs...)
}

// LoadWith is Load with texts that replace variables, by name. It warns of nothing.
func LoadWith(instead map[string]string, needs ...string) (Settings, error) {
	l := newLoader(needs)
	l.readEnvironment(instead)
	return l.finish()
}

// From returns the settings that have these texts, by variable. All others have their defaults. From does not
// read the environment.
func From(texts map[string]string) (Settings, error) {
	l := newLoader(nil)
	for _, v := range l.variables {
		text, given := texts[v.Name]
		if !given {
			text = v.Default
		}
		l.take(v, text)
	}
	for name := range texts {
		if !slices.ContainsFunc(l.variables, func(v variable) bool { return v.Name == name }) {
			l.problem(name, "is not a setting")
		}
	}
	return l.finish()
}

// LoadWithOrigins loads all settings, and returns where each one came from.
func LoadWithOrigins() (Settings, []Origin, error) {
	l := newLoader(nil)
	origins := l.readEnvironment(nil)
	unknown := unknownVariables()
	s, err := l.finish()
	for i := range origins {
		origins[i].derive(l.settings)
	}
	if err != nil {
		l.problems.lines = append(l.problems.lines, unknown...) // one of them may be the cause
		return s, origins, err
	}
	s.Exposed, s.Unknown = exposed(origins), unknown
	return s, origins, nil
}

// Deciding returns the settings that the status evaluates.
func (s Settings) Deciding() config.Deciding {
	return config.Deciding{
		Rules: s.Store.Limits, Dedupe: s.Store.Dedupe, Channel: s.Slack.Channel, Routes: s.Slack.Routes,
		Subject: s.NATS.Pattern,
	}
}

// Snapshot returns the settings for a worker's snapshot. The hash covers Deciding and the fields tagged
// hash.
func (s Settings) Snapshot() snapshot.Settings {
	var others strings.Builder
	for _, v := range variablesIn(&s) {
		if v.tag.Get("hash") == "true" {
			fmt.Fprintf(&others, "%s=%q\n", v.Name, fmt.Sprint(v.field.Interface()))
		}
	}
	return s.Deciding().Snapshot(others.String())
}

// Channels returns the channels that the settings name, sorted. It returns none for a webhook.
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
