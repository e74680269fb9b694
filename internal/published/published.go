// Package published is what a worker shows others of its settings: which limits it decides with, where it posts, and what it
// reads. Workers publish it through their counts (package stats), so that the status shows the limits that hold and not those of
// whoever asks, and so that replicas that differ are named.
//
// It knows the form of that document, how to read one that anybody may have written, and how several differ. It does not know
// Redis, the environment, or how differences are shown on a screen. No secret is ever in it.
//
// Reading order: published.go (what is published), document.go (its form), compare.go (who runs with what), sharing.go (which deployments
// differ on purpose).
package published

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// Settings are what a worker runs with, as far as others may know it.
type Settings struct {
	Limits   ratelimit.Rules // with the pace
	Dedupe   time.Duration
	MaxAge   time.Duration // older events are dropped; 0: none
	Channel  string        // for events without a channel and a route; empty with a webhook
	Routes   pattern.Table[string]
	Stream   string
	Consumer string
	Subject  event.Pattern // the zero Pattern: not known

	// RoutesUnknown: Routes is empty because there are too many of them to be published.
	RoutesUnknown bool
}

// The settings by the names of their variables, in the order in which differences are shown: first those that two deployments
// cannot share a namespace with.
const (
	mode     = "NATS_MODE"
	stream   = "NATS_STREAM"
	subject  = "NATS_SUBJECT"
	consumer = "NATS_CONSUMER"
	routes   = "SLACK_ROUTES"

	defaultChannel = "SLACK_CHANNEL"
)

// deployment are the settings that make a deployment another one.
var deployment = []string{mode, stream, subject, consumer}

// jetStream is what a worker of v0.1.0 expects there.
const jetStream = "jetstream"

// setting is one of the settings, as text and back.
type setting struct {
	name   string
	write  func(Settings) string
	read   func(*Settings, string) error
	absent func(*Settings) // notes that it is too long to be published; nil: without it the others are of no use
}

// all are the settings that are published. What one of them writes, it reads.
var all = []setting{
	{name: mode, write: func(Settings) string { return jetStream }, read: func(_ *Settings, text string) error {
		if text != jetStream {
			return fmt.Errorf("%.40q, expected jetstream", text)
		}
		return nil
	}},
	{name: stream, write: func(s Settings) string { return s.Stream }, read: name(func(s *Settings) *string { return &s.Stream })},
	{name: subject, write: func(s Settings) string { return s.Subject.String() }, read: func(s *Settings, text string) (err error) {
		s.Subject, err = event.ParsePattern(text)
		return err
	}},
	{name: consumer, write: func(s Settings) string { return s.Consumer }, read: name(func(s *Settings) *string { return &s.Consumer })},
	{name: "LIMIT_GLOBAL", write: func(s Settings) string { return s.Limits.Global.String() }, read: func(s *Settings, text string) (err error) {
		s.Limits.Global, err = ratelimit.ParseLimit(text)
		return err
	}},
	{name: "LIMIT_CATEGORY", write: func(s Settings) string { return s.Limits.Category.String() }, read: func(s *Settings, text string) (err error) {
		s.Limits.Category, err = ratelimit.ParseLimit(text)
		return err
	}},
	{name: "LIMIT_OVERRIDES", write: func(s Settings) string { return listOf(s.Limits.Overrides.All()) }, read: func(s *Settings, text string) (err error) {
		s.Limits.Overrides, err = ratelimit.ParseOverrides(text)
		return err
	}},
	{name: "LIMIT_GROUP", write: func(s Settings) string { return s.Limits.Group.String() }, read: func(s *Settings, text string) (err error) {
		s.Limits.Group, err = ratelimit.ParseGroupLimit(text)
		return err
	}},
	{name: "LIMIT_GROUP_OVERRIDES", write: func(s Settings) string { return listOf(maps.All(s.Limits.GroupOverrides)) }, read: func(s *Settings, text string) (err error) {
		s.Limits.GroupOverrides, err = ratelimit.ParseGroupOverrides(text)
		return err
	}},
	{name: "LIMIT_RESERVE", write: func(s Settings) string { return listOf(maps.All(s.Limits.Reserve)) }, read: func(s *Settings, text string) (err error) {
		s.Limits.Reserve, err = ratelimit.ParseReserve(text)
		return err
	}},
	{name: "DEDUPE_WINDOW", write: func(s Settings) string { return term.ShortDuration(s.Dedupe) }, read: duration(func(s *Settings) *time.Duration { return &s.Dedupe }, time.Millisecond)},
	{name: "EVENT_MAX_AGE", write: func(s Settings) string { return term.ShortDuration(s.MaxAge) }, read: duration(func(s *Settings) *time.Duration { return &s.MaxAge }, 0)},
	{name: "SLACK_PACE", write: func(s Settings) string { return paceText(s.Limits.Pace) }, read: func(s *Settings, text string) (err error) {
		s.Limits.Pace, err = ratelimit.ParsePace(text)
		return err
	}},
	{name: defaultChannel, write: func(s Settings) string { return s.Channel }, read: func(s *Settings, text string) error {
		s.Channel = text
		return nil
	}},
	{name: routes, write: func(s Settings) string { return listOf(s.Routes.All()) }, read: func(s *Settings, text string) (err error) {
		s.Routes, err = ParseRoutes(text)
		return err
	}, absent: func(s *Settings) { s.RoutesUnknown = true }},
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

func paceText(pace ratelimit.Tier) string {
	if pace == (ratelimit.Tier{}) {
		return "off"
	}
	return pace.String()
}

// ParseRoutes reads channels by category or pattern: "errors=C0123,team-a.>=#team-a". An empty text gives none. The error is
// everything that is wrong, joined as by errors.Join: each names the entry and what was expected.
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

// name reads a name of a stream or a consumer.
func name(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		if text == "" {
			return errors.New("is empty, expected a name")
		}
		*field(s) = text
		return nil
	}
}

// longest is the longest duration that is read.
const longest = 31 * 24 * time.Hour

// duration reads one of least to longest.
func duration(field func(*Settings) *time.Duration, least time.Duration) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > longest {
			return fmt.Errorf("%.40q, expected a duration from %s to %s", text, term.ShortDuration(least), term.ShortDuration(longest))
		}
		*field(s) = d
		return nil
	}
}

// ChannelOf is the channel of a category's events that name none, and the pattern of SLACK_ROUTES that it is from; empty: the
// default channel. An empty channel is the webhook's.
func (s Settings) ChannelOf(category string) (channel, route string) {
	if channel, route, found := s.Routes.Find(category); found {
		return channel, route
	}
	return s.Channel, ""
}

// Pace is SLACK_PACE as text: 10/10s, or off.
func (s Settings) Pace() string { return paceText(s.Limits.Pace) }

// quoted is a text from outside, cut, for an error.
func quoted(text string) string { return strconv.Quote(text[:min(len(text), 40)]) }
