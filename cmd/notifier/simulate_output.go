//go:build !production

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"notifier/internal/ratelimit"
	"notifier/internal/simulate"
)

// verdictTime is how the log writes times.
const verdictTime = "2006-01-02T15:04:05.000000Z"

// verdictLine is one line of -json. The names are the log's, but for line, which says where the event was read.
type verdictLine struct {
	Line       int     `json:"line"`
	Time       string  `json:"time"`
	Category   string  `json:"category"`
	ID         string  `json:"id,omitempty"`
	Outcome    string  `json:"outcome"`
	Reason     string  `json:"reason,omitempty"`
	Limit      string  `json:"limit,omitempty"`
	RetryAfter float64 `json:"retry_after_s,omitempty"`
}

func writeVerdict(out io.Writer, v simulate.Verdict) error {
	line := verdictLine{
		Line: v.Line, Time: v.Time().Format(verdictTime), Category: v.Category, ID: v.ID,
		Outcome: v.Outcome, Reason: v.Reason, RetryAfter: v.RetryAfter.Seconds(),
	}
	if v.Tier.Count > 0 {
		line.Limit = v.Tier.String()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // as the log
	if err := encoder.Encode(line); err != nil {
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}

// writeSummary writes the heading, the notes and the table.
func writeSummary(out io.Writer, input simulate.Input, limits config, summary *simulate.Summary) error {
	first, last := input.Events[0].Time(), input.Events[len(input.Events)-1].Time()
	if _, err := fmt.Fprintf(out, "%s from %s to %s.\n%s\n", counted(len(input.Events), "event"),
		first.Format(time.RFC3339), last.Format(time.RFC3339), limitsLine(limits)); err != nil {
		return err
	}
	if err := writeNotes(out, input); err != nil {
		return err
	}
	return writeTable(out, summary)
}

// writeNotes says what was done to the input: nothing is left out in silence.
func writeNotes(out io.Writer, input simulate.Input) error {
	var notes []string
	if input.Disordered > 0 {
		notes = append(notes, fmt.Sprintf("Sorted by time: %s stood behind a later one.", counted(input.Disordered, "event")))
	}
	if input.Other > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s of JSON not about an event.", counted(input.Other, "line")))
	}
	if input.Undecided > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s that no limit decided (dead or expired).", counted(input.Undecided, "event")))
	}
	if input.Bad > 0 {
		notes = append(notes, fmt.Sprintf("Skipped: %s that could not be read; %v.", counted(input.Bad, "line"), input.FirstBad))
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(out, note); err != nil {
			return err
		}
	}
	return nil
}

// writeTable writes a row per category and one for all. What hardly ever occurs has a column only where it did.
func writeTable(out io.Writer, summary *simulate.Summary) error {
	all, categories := summary.All(), summary.Categories()
	all.Category = "all"
	width := 0
	for _, count := range append(categories, all) {
		width = max(width, utf8.RuneCountInString(count.Category))
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(category string, cells ...any) {
		_, _ = fmt.Fprintf(table, "%-*s\t", width, category)
		for _, cell := range cells {
			_, _ = fmt.Fprintf(table, "%v\t", cell)
		}
		_, _ = fmt.Fprintln(table)
	}
	cells := func(events, sent, global, own, duplicate, dead, silence any) []any {
		cells := []any{events, sent, global, own}
		if all.Duplicate > 0 {
			cells = append(cells, duplicate)
		}
		if all.Dead > 0 {
			cells = append(cells, dead)
		}
		return append(cells, silence)
	}
	_, _ = fmt.Fprintln(table)
	row("category", cells("events", "sent", "dropped: global limit", "dropped: its own limit", "duplicates", "dead: cost", "longest silence")...)
	for _, c := range append(categories, all) {
		row(c.Category, cells(c.Events, c.Sent, c.Global, c.Own, c.Duplicate, c.Dead, silenceText(c))...)
	}
	return table.Flush() // errors of the lines above come back here
}

// silenceText is the longest silence, to the second where it is a minute or more.
func silenceText(c simulate.Count) string {
	silence, ok := c.Silence()
	switch {
	case !ok:
		return "-"
	case silence >= time.Minute:
		return ratelimit.ShortDuration(silence.Round(time.Second))
	default:
		return ratelimit.ShortDuration(silence.Round(time.Millisecond))
	}
}

// overridesText lists the overrides by category: ", errors=20/30m", or nothing.
func overridesText(overrides map[string]ratelimit.Limit) string {
	var text strings.Builder
	for _, category := range slices.Sorted(maps.Keys(overrides)) {
		fmt.Fprintf(&text, ", %s=%s", category, overrides[category])
	}
	return text.String()
}
