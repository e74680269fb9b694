package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/term"
)

// fact is one thing that is known of an outcome: its limit, 10/30m. "why" has a line for each, "events" and
// "publish -wait" have them in one line, all in the same words.
type fact struct{ name, text string }

func (f fact) String() string { return f.name + " " + f.text }

// facts are what is known of an outcome besides its time, its reason and its source.
func facts(o recent.Outcome) (known []fact) {
	add := func(name, text string) {
		if text != "" {
			known = append(known, fact{name, text})
		}
	}
	add("limit", o.Limit)
	if o.Reserved > 0 {
		add("reserved", term.Count(o.Reserved, "slot")+" of it kept for other categories (LIMIT_RESERVE)")
	}
	if o.Limit != "" {
		add("room", roomText(o))
	}
	if o.Mute != "" {
		add("mute", muteText(o))
	}
	if o.MaxAge > 0 {
		add("age", fmt.Sprintf("%s, above EVENT_MAX_AGE %s", span(o.Age), span(o.MaxAge)))
	}
	add("detail", o.Detail)
	add("channel", o.Channel)
	add("message", o.SlackTS)
	if o.Ambiguous {
		add("posted", "possibly twice (ambiguous)")
	}
	if o.Outcome == outcome.Dead {
		add("letter", letterText(o))
	}
	return known
}

// joined are the facts in one line, without those of some names.
func joined(known []fact, without ...string) string {
	var texts []string
	for _, f := range known {
		if !slices.Contains(without, f.name) {
			texts = append(texts, f.String())
		}
	}
	return strings.Join(texts, "; ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func span(seconds float64) string {
	return term.Duration(time.Duration(seconds * float64(time.Second)))
}

// roomText is when a limit that has refused an event had room for it.
func roomText(o recent.Outcome) string {
	if o.AboveLimit {
		return "not before the temporary limit has ended: the event's cost is above it"
	}
	text := roomAt(o).Format(time.RFC3339)
	if o.AtLeast {
		text += " or later"
	}
	return text
}

// roomAt is when there was room again, in whole seconds.
func roomAt(o recent.Outcome) time.Time {
	at := o.Time.Add(time.Duration(o.RetryAfter * float64(time.Second)))
	return at.Add(time.Second - 1).Truncate(time.Second).UTC()
}

func muteText(o recent.Outcome) string {
	text := o.Mute
	if o.MutedUntil != nil {
		text += ", until " + stamp(*o.MutedUntil)
	}
	if o.MutedBy != "" {
		text += ", by " + o.MutedBy
	}
	if o.MuteReason != "" {
		text += ": " + o.MuteReason
	}
	return text
}

// letterText is where the dead letter is.
func letterText(o recent.Outcome) string {
	switch {
	case o.NoLetter:
		return "none: its category had written its share of letters"
	case o.LetterSeq > 0:
		return fmt.Sprintf("notifier dead show %d", o.LetterSeq)
	}
	return "notifier dead list -category " + o.Category
}
