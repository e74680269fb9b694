// Package config writes the settings that decide about events into a worker's snapshot, and reads them back.
//
// The status shows and evaluates the limits of the running workers, which may differ from the variables of
// its own shell. A snapshot therefore has the limits as text, one entry for each variable in the form that
// the environment has. All other settings that decide about events are in its hash alone: equal hashes mean
// that workers treat events alike.
//
// Any client of Redis may have written a snapshot, and a later release may have limits that this one
// does not know. Parse checks everything and refuses the rest.
package config

import (
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
	"notifier/internal/snapshot"
	"notifier/internal/term"
)

const (
	maxTextBytes = 16 << 10 // of a snapshot's settings
	maxDuration  = 31 * 24 * time.Hour
)

// Deciding holds the settings that the status needs to tell how an event would be decided.
type Deciding struct {
	Rules   ratelimit.Rules
	Dedupe  time.Duration // above 0
	Channel string        // empty with a webhook
	Routes  pattern.Table[string]
	Subject event.Pattern
}

// variable converts one setting. The text is empty if the setting is not set.
type variable struct {
	name  string
	write func(Deciding) string
	read  func(*Deciding, string) error
}

var variables = []variable{
	{
		"NATS_SUBJECT",
		func(d Deciding) string { return d.Subject.String() },
		into(event.ParsePattern, func(d *Deciding) *event.Pattern { return &d.Subject }),
	},
	{
		"LIMIT_GLOBAL",
		func(d Deciding) string { return d.Rules.Global.String() },
		into(ratelimit.ParseLimit, func(d *Deciding) *ratelimit.Limit { return &d.Rules.Global }),
	},
	{
		"LIMIT_CATEGORY",
		func(d Deciding) string { return d.Rules.Category.String() },
		into(ratelimit.ParseLimit, func(d *Deciding) *ratelimit.Limit { return &d.Rules.Category }),
	},
	{
		"LIMIT_OVERRIDES",
		func(d Deciding) string { return list(d.Rules.Overrides.All()) },
		into(ratelimit.ParseOverrides, func(d *Deciding) *pattern.Table[ratelimit.Limit] {
			return &d.Rules.Overrides
		}),
	},
	{
		"LIMIT_GROUP",
		func(d Deciding) string { return d.Rules.Group.String() },
		into(ratelimit.ParseGroupLimit, func(d *Deciding) *ratelimit.Limit { return &d.Rules.Group }),
	},
	{
		"LIMIT_GROUP_OVERRIDES",
		func(d Deciding) string { return list(maps.All(d.Rules.GroupOverrides)) },
		into(ratelimit.ParseGroupOverrides, func(d *Deciding) *map[string]ratelimit.Limit {
			return &d.Rules.GroupOverrides
		}),
	},
	{
		"LIMIT_RESERVE",
		func(d Deciding) string { return list(maps.All(d.Rules.Reserve)) },
		into(ratelimit.ParseReserve, func(d *Deciding) *map[string]int { return &d.Rules.Reserve }),
	},
	{
		"DEDUPE_WINDOW",
		func(d Deciding) string { return term.ShortDuration(d.Dedupe) },
		into(parseDuration, func(d *Deciding) *time.Duration { return &d.Dedupe }),
	},
	{
		"SLACK_CHANNEL",
		func(d Deciding) string { return d.Channel },
		into(asIs, func(d *Deciding) *string { return &d.Channel }),
	},
	{
		"SLACK_ROUTES",
		func(d Deciding) string { return list(d.Routes.All()) },
		into(ParseRoutes, func(d *Deciding) *pattern.Table[string] { return &d.Routes }),
	},
}

// required lists the variables without which there is nothing to evaluate.
var required = []string{"NATS_SUBJECT", "LIMIT_GLOBAL", "LIMIT_CATEGORY", "DEDUPE_WINDOW"}

// into returns a function that parses a text into a field.
func into[T any](parse func(string) (T, error), field func(*Deciding) *T) func(*Deciding, string) error {
	return func(d *Deciding, text string) error {
		value, err := parse(text)
		if err == nil {
			*field(d) = value
		}
		return err
	}
}

func asIs(text string) (string, error) { return text, nil }

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxDuration {
		return 0, fmt.Errorf("%q, expected a duration up to %s", text, term.ShortDuration(maxDuration))
	}
	return d, nil
}

// list writes a list as its variable has it, sorted.
func list[T any](entries func(yield func(string, T) bool)) string {
	var entriesText []string
	for name, value := range entries {
		entriesText = append(entriesText, fmt.Sprintf("%s=%v", name, value))
	}
	slices.Sort(entriesText)
	return strings.Join(entriesText, ",")
}

// Text returns the settings as text, by variable, without those that are not set. Parse is its inverse.
func (d Deciding) Text() map[string]string {
	texts := map[string]string{}
	for _, v := range variables {
		if text := v.write(d); text != "" {
			texts[v.name] = text
		}
	}
	return texts
}

// Snapshot returns the settings for a snapshot. others is the text of all further settings that decide about
// events; only the hash contains it.
func (d Deciding) Snapshot(others string) snapshot.Settings {
	texts := d.Text()
	hash, size := sha256.New(), 0
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		size += len(name) + len(texts[name])
		fmt.Fprintf(hash, "%s=%q\n", name, texts[name])
	}
	fmt.Fprintf(hash, "%q\n", others)
	settings := snapshot.Settings{Hash: hex.EncodeToString(hash.Sum(nil)[:4]), Text: texts}
	if size > maxTextBytes {
		settings.Text = nil
	}
	return settings
}

// Parse reads the text of a snapshot. The error names everything that is wrong, on one line that others may
// have written.
func Parse(texts map[string]string) (Deciding, error) {
	var d Deciding
	var wrong []string
	size, known := 0, 0
	for name, text := range texts {
		size += len(name) + len(text)
	}
	if len(texts) == 0 || size > maxTextBytes {
		return Deciding{}, fmt.Errorf("%d bytes of settings, expected 1 to %d", size, maxTextBytes)
	}
	for _, v := range variables {
		text, set := texts[v.name]
		if !set {
			continue
		}
		known++
		if err := v.read(&d, text); err != nil {
			wrong = append(wrong, v.name+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	for _, name := range required {
		if _, set := texts[name]; !set {
			wrong = append(wrong, name+" is missing")
		}
	}
	if known < len(texts) {
		wrong = append(wrong, "variables of another release")
	}
	if len(wrong) == 0 {
		if err := d.Rules.CheckReserve(); err != nil {
			wrong = append(wrong, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	if len(wrong) > 0 {
		return Deciding{}, errors.New(strings.Join(wrong, "; "))
	}
	return d, nil
}

// ChannelOf returns the channel of a category's events that name none. It is empty with a webhook.
func (d Deciding) ChannelOf(category string) string {
	if channel, _, found := d.Routes.Find(category); found {
		return channel
	}
	return d.Channel
}

// ParseRoutes reads channels by category or pattern: "errors=C0123,team-a.>=#team-a". An empty text gives
// none. It returns all errors, joined as by errors.Join; each names the entry and the expected form.
func ParseRoutes(text string) (pattern.Table[string], error) {
	routes, err := pattern.List[string]{
		Form: "CATEGORY=CHANNEL such as errors=C0123", Kind: "category", Name: pattern.Check, Value: parseChannel,
	}.Parse(text)
	if err != nil {
		return pattern.Table[string]{}, err
	}
	return pattern.NewTable(routes)
}

func parseChannel(text string) (string, error) {
	if text == "" {
		return "", errors.New("no channel, expected one such as C0123 or #alerts")
	}
	return text, nil
}
