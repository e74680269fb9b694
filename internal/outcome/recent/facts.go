package recent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/term"
)

// Fact is one thing that is known of an outcome: its limit, 10/30m. "why" has a line for each, "events",
// "publish -wait" and the page have them in one line, all in the same words.
type Fact struct{ Name, Text string }

func (f Fact) String() string { return f.Name + " " + f.Text }

// Facts are what is known of an outcome besides its time, its reason and its source.
func (o Outcome) Facts() (known []Fact) {
	add := func(name, text string) {
		if text != "" {
			known = append(known, Fact{name, text})
		}
	}
	add("limit", o.Limit)
	if o.Limit != "" {
		add("room", roomText(o))
	}
	if o.Reserved > 0 {
		add("reserved", term.Count(o.Reserved, "slot")+" of it kept for other categories (LIMIT_RESERVE)")
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
	switch {
	case o.Ambiguous && o.Found:
		add("posted", "found in the channel after an unknown result")
	case o.Ambiguous && o.Attempts > 2:
		add("posted", fmt.Sprintf("possibly more than once (ambiguous, %d posts begun)", o.Attempts))
	case o.Ambiguous:
		add("posted", "possibly twice (ambiguous)")
	}
	if o.Outcome == outcome.Dead {
		add("letter", letterText(o))
	}
	return known
}

// Joined are the facts in one line, without those of some names. A detail speaks for itself.
func Joined(known []Fact, without ...string) string {
	var texts []string
	for _, f := range known {
		switch {
		case slices.Contains(without, f.Name):
		case f.Name == "detail":
			texts = append(texts, f.Text)
		default:
			texts = append(texts, f.String())
		}
	}
	return strings.Join(texts, "; ")
}

func span(seconds float64) string {
	return term.Duration(time.Duration(seconds * float64(time.Second)))
}

// Summary is what is known of an outcome in one line. The message and the letter have commands of their own.
func (o Outcome) Summary() string {
	text := Joined(o.Facts(), "message", "letter")
	if o.LeftOut > 0 {
		text = strings.TrimPrefix(fmt.Sprintf("%s; %d more before", text, o.LeftOut), "; ")
	}
	return text
}

// roomText is when a limit that has refused an event had room for it.
func roomText(o Outcome) string {
	if o.AboveLimit {
		return "not before the temporary limit has ended: the event's cost is above it"
	}
	text := o.RoomAt().Format(time.RFC3339)
	if o.AtLeast {
		text += " or later"
	}
	return text
}

// RoomAt is when there was room again, in whole seconds.
func (o Outcome) RoomAt() time.Time {
	at := o.Time.Add(time.Duration(o.RetryAfter * float64(time.Second)))
	return at.Add(time.Second - 1).Truncate(time.Second).UTC()
}

func muteText(o Outcome) string {
	text := o.Mute
	if o.MutedUntil != nil {
		text += ", set until " + o.MutedUntil.UTC().Format(time.RFC3339Nano)
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
func letterText(o Outcome) string {
	switch {
	case o.NoLetter:
		return "none: its category had written its share of letters"
	case o.LetterSeq > 0:
		return fmt.Sprintf("notifier dead show %d", o.LetterSeq)
	}
	return "notifier dead list -category " + o.Category
}
