package simulate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// WriteTable writes the span of the events, the limits, the notes on the input, and a row per category. input
// must hold an event. Errors are out's.
func (s *Summary) WriteTable(out io.Writer, input Input, rules ratelimit.Rules, dedupe time.Duration) error {
	first, last := input.Events[0].Time(), input.Events[len(input.Events)-1].Time()
	lines := fmt.Sprintf("%s from %s to %s.\nLimits: %s; an id counts once in %s.\n%s",
		term.Count(len(input.Events), "event"), first.Format(time.RFC3339), last.Format(time.RFC3339),
		limitsText(rules), term.ShortDuration(dedupe), s.reservesText(rules))
	lines += "SLACK_PACE is ignored: it holds posts back and drops nothing.\n"
	if _, err := io.WriteString(out, lines); err != nil {
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

// WriteNotes writes a line about each change to the input: reordered, skipped and undecided lines. It writes
// nothing if the input was used unchanged. Errors are out's.
func (i Input) WriteNotes(out io.Writer) error {
	var notes []string
	if i.OutOfOrder > 0 {
		notes = append(
			notes,
			fmt.Sprintf("Sorted by time: %s came after a later one.", term.Count(i.OutOfOrder, "event")),
		)
	}
	if i.Other > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s of JSON not about an event.", term.Count(i.Other, "line")))
	}
	if i.Undecided > 0 {
		notes = append(
			notes,
			fmt.Sprintf("Skipped: %s that no limit decided (dead or expired).", term.Count(i.Undecided, "event")),
		)
	}
	if i.Bad > 0 {
		notes = append(
			notes,
			fmt.Sprintf("Skipped: %s that could not be read; %v.", term.Count(i.Bad, "line"), i.FirstBad),
		)
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(out, term.Printable(note)); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes a row per category and one for all. Rare outcomes have a column only if they occurred.
func (s *Summary) writeRows(out io.Writer) error {
	all, categories := s.All(), s.Categories()
	all.Category = "all"
	table := term.NewNumberTable(out)
	row := func(category string, events, sent, global, group, own, duplicate, dead, silence any) {
		cells := []any{category, events, sent, global}
		if all.Group > 0 {
			cells = append(cells, group)
		}
		cells = append(cells, own)
		if all.Duplicate > 0 {
			cells = append(cells, duplicate)
		}
		if all.Dead > 0 {
			cells = append(cells, dead)
		}
		table.Row(append(cells, silence)...)
	}
	row(
		"category",
		"events",
		"sent",
		"dropped: global limit",
		"dropped: group limit",
		"dropped: category limit",
		"duplicates",
		"dead: cost",
		"longest silence",
	)
	for _, c := range append(categories, all) {
		row(c.Category, c.Events, c.Sent, c.Global, c.Group, c.Own, c.Duplicate, c.Dead, silenceText(c))
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

// limitsText lists the limits: "100/30m overall, 10/30m per category, errors=20/30m". It includes groups if
// they have a limit.
func limitsText(rules ratelimit.Rules) string {
	limits := []string{rules.Global.String() + " overall"}
	if len(rules.Group) > 0 {
		limits = append(limits, rules.Group.String()+" per group")
	}
	for _, group := range slices.Sorted(maps.Keys(rules.GroupOverrides)) {
		limits = append(limits, fmt.Sprintf("group %s=%s", group, rules.GroupOverrides[group]))
	}
	limits = append(limits, rules.Category.String()+" per category")
	for category, limit := range rules.Overrides.All() {
		limits = append(limits, fmt.Sprintf("%s=%s", category, limit))
	}
	return strings.Join(limits, ", ")
}

// reservesText has a line for each category with a reserve, and one for the events that other categories lost
// to reserves.
func (s *Summary) reservesText(rules ratelimit.Rules) string {
	var text strings.Builder
	for _, category := range slices.Sorted(maps.Keys(rules.Reserve)) {
		fmt.Fprintf(
			&text,
			"Reserved: %s of the global limit for %s.\n",
			term.Count(rules.Reserve[category], "slot"),
			category,
		)
	}
	if s.all.KeptFrom > 0 {
		fmt.Fprintf(
			&text,
			"While slots were kept for them the global limit dropped %s of others.\n",
			term.Count(s.all.KeptFrom, "event"),
		)
	}
	return text.String()
}
