package status

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Config is the part of the settings that decides about events. Each replica shows it in its heartbeat, so
// that a status is about the limits in force and not about those of the shell it is run in, and replicas that
// differ are named. No secret is in it.
type Config struct {
	Limits   ratelimit.Rules // with the pace
	Dedupe   time.Duration
	MaxAge   time.Duration // older events are dropped; 0: none
	Channel  string        // for events without a channel and a route; empty with a webhook
	Routes   pattern.Table[string]
	Stream   string
	Consumer string
	Subject  event.Pattern // the zero Pattern: not known
	// Others are the settings that no status needs, as text: a heartbeat has a hash of them. Empty: not
	// known.
	Others string

	// RoutesUnknown: Routes is empty because there are too many of them for a heartbeat.
	RoutesUnknown bool
}

const (
	// mostValueBytes bounds a value in a heartbeat, which each replica stores every second. Only a list with
	// hundreds of entries is longer; then there is a hash of it.
	mostValueBytes = 4 << 10
	// mostValues bounds how many there are in a heartbeat that is read: anybody with access to Redis may have
	// written it.
	mostValues = 50

	hashPrefix = "sha256:"
)

const (
	stream   = "NATS_STREAM"
	subject  = "NATS_SUBJECT"
	consumer = "NATS_CONSUMER"
	channel  = "SLACK_CHANNEL"
	routes   = "SLACK_ROUTES"
)

// reads are what a worker reads from. Replicas that differ in it belong to different deployments.
var reads = []string{stream, subject, consumer}

// shownSetting is a setting that is in heartbeats as text.
type shownSetting struct {
	name  string
	write func(Config) string
	read  func(*Config, string) error
}

// shownSettings are in the order in which differences are listed. What one of them writes, it reads.
var shownSettings = []shownSetting{
	{
		name:  stream,
		write: func(c Config) string { return c.Stream },
		read:  parsed(asIs, func(c *Config) *string { return &c.Stream }),
	},
	{
		name:  subject,
		write: func(c Config) string { return c.Subject.String() },
		read:  parsed(event.ParsePattern, func(c *Config) *event.Pattern { return &c.Subject }),
	},
	{
		name:  consumer,
		write: func(c Config) string { return c.Consumer },
		read:  parsed(asIs, func(c *Config) *string { return &c.Consumer }),
	},
	{
		name:  "LIMIT_GLOBAL",
		write: func(c Config) string { return c.Limits.Global.String() },
		read:  parsed(ratelimit.ParseLimit, func(c *Config) *ratelimit.Limit { return &c.Limits.Global }),
	},
	{
		name:  "LIMIT_CATEGORY",
		write: func(c Config) string { return c.Limits.Category.String() },
		read:  parsed(ratelimit.ParseLimit, func(c *Config) *ratelimit.Limit { return &c.Limits.Category }),
	},
	{
		name:  "LIMIT_OVERRIDES",
		write: func(c Config) string { return listOf(c.Limits.Overrides.All()) },
		read: parsed(ratelimit.ParseOverrides, func(c *Config) *pattern.Table[ratelimit.Limit] {
			return &c.Limits.Overrides
		}),
	},
	{
		name:  "LIMIT_GROUP",
		write: func(c Config) string { return c.Limits.Group.String() },
		read:  parsed(ratelimit.ParseGroupLimit, func(c *Config) *ratelimit.Limit { return &c.Limits.Group }),
	},
	{
		name:  "LIMIT_GROUP_OVERRIDES",
		write: func(c Config) string { return listOf(maps.All(c.Limits.GroupOverrides)) },
		read: parsed(ratelimit.ParseGroupOverrides, func(c *Config) *map[string]ratelimit.Limit {
			return &c.Limits.GroupOverrides
		}),
	},
	{
		name:  "LIMIT_RESERVE",
		write: func(c Config) string { return listOf(maps.All(c.Limits.Reserve)) },
		read:  parsed(ratelimit.ParseReserve, func(c *Config) *map[string]int { return &c.Limits.Reserve }),
	},
	{
		name:  "DEDUPE_WINDOW",
		write: func(c Config) string { return term.ShortDuration(c.Dedupe) },
		read:  parsed(time.ParseDuration, func(c *Config) *time.Duration { return &c.Dedupe }),
	},
	{
		name:  "EVENT_MAX_AGE",
		write: func(c Config) string { return term.ShortDuration(c.MaxAge) },
		read:  parsed(time.ParseDuration, func(c *Config) *time.Duration { return &c.MaxAge }),
	},
	{
		name:  "SLACK_PACE",
		write: Config.Pace,
		read:  parsed(ratelimit.ParsePace, func(c *Config) *ratelimit.Tier { return &c.Limits.Pace }),
	},
	{
		name:  channel,
		write: func(c Config) string { return c.Channel },
		read:  parsed(asIs, func(c *Config) *string { return &c.Channel }),
	},
	{
		name:  routes,
		write: func(c Config) string { return listOf(c.Routes.All()) },
		read:  parsed(ParseRoutes, func(c *Config) *pattern.Table[string] { return &c.Routes }),
	},
}

// parsed reads a text into a field.
func parsed[T any](parse func(string) (T, error), field func(*Config) *T) func(*Config, string) error {
	return func(c *Config, text string) error {
		value, err := parse(text)
		if err == nil {
			*field(c) = value
		}
		return err
	}
}

func asIs(text string) (string, error) { return text, nil }

// Shown is what a heartbeat has of the settings.
func (c Config) Shown() stats.Settings {
	shown := stats.Settings{Values: map[string]string{}}
	for _, setting := range shownSettings {
		shown.Values[setting.name] = bounded(setting.write(c))
	}
	if c.Others != "" {
		shown.Others = hashOf(c.Others)
	}
	return shown
}

// bounded is a value, or a hash of it if it is too long for a heartbeat.
func bounded(text string) string {
	if len(text) <= mostValueBytes {
		return text
	}
	return hashPrefix + hashOf(text)
}

func hashOf(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:8])
}

// with is the configuration of a replica that shows this in its heartbeat. A list of which that has only a
// hash is taken from c if the hash is the same. The error is everything that is wrong, on one line: a newer
// release may have limits that this one does not know, and anybody with access to Redis may have written it.
func (c Config) with(shown stats.Settings) (Config, error) {
	var of Config
	var wrong []string
	known := map[string]bool{}
	for _, setting := range shownSettings {
		known[setting.name] = true
		text := shown.Values[setting.name]
		if strings.HasPrefix(text, hashPrefix) {
			own := setting.write(c)
			switch {
			case bounded(own) == text:
				text = own
			case setting.name == routes:
				of.RoutesUnknown, text = true, ""
			default:
				wrong = append(wrong, setting.name+" is too long for a heartbeat")
				continue
			}
		}
		if err := setting.read(&of, text); err != nil {
			wrong = append(wrong, setting.name+" "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown.Values)) {
		if !known[name] {
			wrong = append(wrong, name+" is unknown to this release")
		}
	}
	if len(wrong) == 0 {
		if err := of.Limits.CheckReserve(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return Config{}, errors.New(cut(strings.Join(wrong, "; "), mostErrorBytes))
	}
	return of, nil
}

// listOf writes a list as its variable has it, sorted.
func listOf[T any](entries func(yield func(string, T) bool)) string {
	var list []string
	for name, value := range entries {
		list = append(list, fmt.Sprintf("%s=%v", name, value))
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// ParseRoutes reads channels by category or pattern: "errors=C0123,team-a.>=#team-a". An empty text gives
// none. The error is everything that is wrong, joined as by errors.Join: each names the entry and what was
// expected.
func ParseRoutes(text string) (pattern.Table[string], error) {
	list, err := pattern.List[string]{
		Form: "CATEGORY=CHANNEL such as errors=C0123", Kind: "category", Name: pattern.Check,
		Value: func(channel string) (string, error) {
			if channel == "" {
				return "", errors.New("no channel, expected one such as C0123 or #alerts")
			}
			return channel, nil
		},
	}.Parse(text)
	if err != nil {
		return pattern.Table[string]{}, err
	}
	return pattern.NewTable(list)
}

// ChannelOf is the channel of a category's events that name none, and the pattern of SLACK_ROUTES that it is
// from; empty: the default channel. An empty channel is the webhook's.
func (c Config) ChannelOf(category string) (channel, route string) {
	if channel, route, found := c.Routes.Find(category); found {
		return channel, route
	}
	return c.Channel, ""
}

// webhookChannel is what replicas and pauses call the one channel of a webhook.
const webhookChannel = "webhook"

// laneOf is what replicas and pauses call that channel.
func (c Config) laneOf(category string) string {
	channel, _ := c.ChannelOf(category)
	return cmp.Or(channel, webhookChannel)
}

// Pace is SLACK_PACE as text: 10/10s, or off.
func (c Config) Pace() string {
	if c.Limits.Pace == (ratelimit.Tier{}) {
		return "off"
	}
	return c.Limits.Pace.String()
}

// cut bounds a text from outside.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
