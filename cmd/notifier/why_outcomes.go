package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/recent"
)

// recordedTimeout is how long why waits for what workers have recorded.
const recordedTimeout = 10 * time.Second

// recorded is what workers have recorded of an event, the latest first. The error is why that is not known; nothing was recorded
// where there is no stream yet.
func recorded(ctx context.Context, id, category string) (found []recent.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordedTimeout)
	defer cancel()
	err = readOutcomes(ctx, "notifier why", func(ctx context.Context, reader *recent.Reader, place recent.Place) error {
		answer, err := reader.List(ctx, recent.Filter{EventID: id, Category: category})
		found = answer.Outcomes
		if err != nil && !errors.Is(err, recent.ErrNoStream) {
			return fmt.Errorf("stream %s: %w", place.Stream, err)
		}
		return nil
	})
	return found, err
}

// notInRedis are the outcomes that Redis does not know of: what was dropped or is dead, and what was sent where there is no trace of it
// any more. That an event came once more, as a duplicate, says nothing about what became of it.
func notInRedis(found []recent.Outcome, traces []ratelimit.Trace) []recent.Outcome {
	traced := map[string]bool{}
	for _, trace := range traces {
		traced[trace.Category] = true
	}
	var left []recent.Outcome
	for _, o := range found {
		if shown := o.Outcome == outcome.Sent || o.Reason == outcome.Duplicate; !shown || !traced[o.Category] {
			left = append(left, o)
		}
	}
	return left
}

// outcomeText describes one outcome for people.
func outcomeText(o recent.Outcome) []string {
	var lines []string
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	switch o.Outcome {
	case outcome.Sent:
		add("%s of category %s was sent.", o.EventID, o.Category)
		add("  sent      %s", stamp(o.Time))
	case outcome.Dead:
		add("%s of category %s is dead: %s.", o.EventID, o.Category, o.Reason)
		add("  dead      %s", stamp(o.Time))
	default:
		add("%s of category %s was dropped: %s.", o.EventID, o.Category, o.Reason)
		add("  dropped   %s", stamp(o.Time))
	}
	if o.Source != "" {
		add("  source    %s", o.Source)
	}
	if o.Limit != "" {
		add("  limit     %s", o.Limit)
		add("  room      %s", roomText(o))
	}
	if o.Mute != "" && o.MutedUntil != nil {
		add("  mute      %s, until %s, by %s", o.Mute, stamp(*o.MutedUntil), o.MutedBy)
	}
	if o.Detail != "" {
		add("  detail    %s", o.Detail)
	}
	if o.Channel != "" {
		add("  channel   %s", o.Channel)
	}
	if o.Ambiguous {
		add("  posted    perhaps twice: the end of an earlier attempt is not known")
	}
	if o.Outcome == outcome.Dead {
		add("  letter    %s", letterText(o))
	}
	return lines
}

// roomText is when a limit that has refused an event had room for it.
func roomText(o recent.Outcome) string {
	if o.AboveLimit {
		return "not before the limit for a while has ended: its cost is above that"
	}
	text := roomAt(o).Format(time.RFC3339Nano)
	if o.AtLeast {
		text += " or later: slots are kept for other categories"
	}
	return text
}

// roomAt is when there was room again.
func roomAt(o recent.Outcome) time.Time {
	return o.Time.Add(time.Duration(o.RetryAfter * float64(time.Second))).UTC()
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

// whyRecorded is what a line of why's JSON has of an outcome, with the names of the log.
type whyRecorded struct {
	Outcome string     `json:"outcome"`
	Reason  string     `json:"reason,omitempty"`
	Detail  string     `json:"detail,omitempty"`
	Time    time.Time  `json:"time"`
	Limit   string     `json:"limit,omitempty"`
	RoomAt  *time.Time `json:"room_at,omitempty"` // when the limit had room again
	Mute    string     `json:"mute,omitempty"`
	Channel string     `json:"channel,omitempty"`
	Letter  uint64     `json:"letter_seq,omitempty"`
	Source  string     `json:"source,omitempty"`
}

// newOutcomeLine is the answer for scripts about one outcome.
func newOutcomeLine(o recent.Outcome) whyLine {
	line := whyLine{EventID: o.EventID, State: o.Outcome, Category: o.Category}
	line.Recorded = &whyRecorded{
		Outcome: o.Outcome, Reason: o.Reason, Detail: o.Detail, Time: o.Time, Limit: o.Limit, Mute: o.Mute,
		Channel: o.Channel, Letter: o.LetterSeq, Source: o.Source,
	}
	if o.Limit != "" && !o.AboveLimit {
		at := roomAt(o)
		line.Recorded.RoomAt = &at
	}
	if o.Outcome == outcome.Sent {
		at := o.Time.UTC()
		line.Sent = &at
	}
	return line
}
