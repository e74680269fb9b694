//go:build !production

package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// WriteTable writes for people what was simulated: the span of the events, the limits, the notes on the input, and a row
// per category. input has at least one event. The error is out's.
func (s *Summary) WriteTable(out io.Writer, input Input, rules ratelimit.Rules, dedupe time.Duration) error {
	first, last := input.Events[0].Time(), input.Events[len(input.Events)-1].Time()
	if _, err := fmt.Fprintf(out, "%s from %s to %s.\nLimits: %s overall, %s per category%s; an id counts once in %s.\nSLACK_PACE is ignored: it holds posts back and drops nothing.\n",
		term.Count(len(input.Events), "event"), first.Format(time.RFC3339), last.Format(time.RFC3339),
		rules.Global, rules.Category, overridesText(rules.Overrides), term.ShortDuration(dedupe)); err != nil {
		return err
	}
	if err := input.WriteNotes(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return s.writeRows(out)
}

// WriteNotes writes for people what was done to the input, a line each; nothing where nothing was. The error is out's.
func (i Input) WriteNotes(out io.Writer) error {
	var notes []string
	if i.OutOfOrder > 0 {
		notes = append(notes, fmt.Sprintf("Sorted by time: %s came after a later one.", term.Count(i.OutOfOrder, "event")))
	}
	if i.Other > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s of JSON not about an event.", term.Count(i.Other, "line")))
	}
	if i.Undecided > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s that no limit decided (dead or expired).", term.Count(i.Undecided, "event")))
	}
	if i.Bad > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s that could not be read; %v.", term.Count(i.Bad, "line"), i.FirstBad))
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(out, term.Printable(note)); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes a row per category and one for all. What is rare has a column only where it occurred.
func (s *Summary) writeRows(out io.Writer) error {
	all, categories := s.All(), s.Categories()
	all.Category = "all"
	table := term.NewNumberTable(out)
	row := func(category string, events, sent, global, own, duplicate, dead, silence any) {
		cells := []any{category, events, sent, global, own}
		if all.Duplicate > 0 {
			cells = append(cells, duplicate)
		}
		if all.Dead > 0 {
			cells = append(cells, dead)
		}
		table.Row(append(cells, silence)...)
	}
	row("category", "events", "sent", "dropped: global limit", "dropped: category limit", "duplicates", "dead: cost", "longest silence")
	for _, c := range append(categories, all) {
		row(c.Category, c.Events, c.Sent, c.Global, c.Own, c.Duplicate, c.Dead, silenceText(c))
	}
	return table.Flush()
}

// silenceText is the longest silence, to the second where it is a minute or more.
func silenceText(c Count) string {
	silence, ok := c.Silence()
	switch {
	case !ok:
		return "-"
	case silence >= time.Minute:
		return term.ShortDuration(silence.Round(time.Second))
	default:
		return term.ShortDuration(silence.Round(time.Millisecond))
	}
}

// overridesText lists the overrides by category: ", errors=20/30m", or nothing.
func overridesText(overrides pattern.Table[ratelimit.Limit]) string {
	var text strings.Builder
	for category, limit := range overrides.All() {
		fmt.Fprintf(&text, ", %s=%s", category, limit)
	}
	return text.String()
}
