package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// Table counts verdicts by category. The zero Table is empty.
type Table struct {
	all  row
	rows map[string]*row
}

// row counts events by outcome, or by the reason of a drop.
type row struct {
	category string
	events   int
	by       map[string]int
}

// Add counts one verdict.
func (t *Table) Add(v Verdict) {
	if t.rows == nil {
		t.all = row{category: "all", by: map[string]int{}}
		t.rows = map[string]*row{}
	}
	if t.rows[v.Category] == nil {
		t.rows[v.Category] = &row{category: v.Category, by: map[string]int{}}
	}
	counted := v.Outcome
	if v.Outcome == outcome.Dropped {
		counted = v.Reason
	}
	for _, r := range []*row{t.rows[v.Category], &t.all} {
		r.events++
		r.by[counted]++
	}
}

// columns are the counts of a row. Optional ones are shown if they are not all zero.
var columns = []struct {
	head, by string
	optional bool
}{
	{"SENT", outcome.Sent, false},
	{"DROPPED: GLOBAL", outcome.Global, false},
	{"DROPPED: GROUP", outcome.Group, true},
	{"DROPPED: CATEGORY", outcome.Category, false},
	{"DUPLICATE", outcome.Duplicate, true},
	{"DEAD: COST", outcome.Dead, true},
}

// Write writes the span of the events, the limits and a row per category, the one with the most events first.
// input must hold an event. The error is out's.
func (t *Table) Write(out io.Writer, input Input, rules ratelimit.Rules, dedupe time.Duration) error {
	first, last := input.Events[0].Time, input.Events[len(input.Events)-1].Time
	const head = "%s from %s to %s.\nLimits: %s; an id counts once in %s. SLACK_PACE is ignored.\n\n"
	_, err := fmt.Fprintf(out, head,
		term.Count(len(input.Events), "event"), first.Format(time.RFC3339), last.Format(time.RFC3339),
		limitsText(rules), term.ShortDuration(dedupe))
	if err != nil {
		return err
	}
	table := term.NewNumberTable(out)
	write := func(category, events any, cell func(column int) any) {
		cells := []any{category, events}
		for i, c := range columns {
			if !c.optional || t.all.by[c.by] > 0 {
				cells = append(cells, cell(i))
			}
		}
		table.Row(cells...)
	}
	write("CATEGORY", "EVENTS", func(i int) any { return columns[i].head })
	rows := slices.SortedFunc(maps.Values(t.rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.events, a.events), cmp.Compare(a.category, b.category))
	})
	for _, r := range append(rows, &t.all) {
		write(r.category, r.events, func(i int) any { return r.by[columns[i].by] })
	}
	return table.Flush()
}

// WriteNotes writes a line about each kind of skipped line, and the unreadable ones with their problems. The
// error is out's.
func (i Input) WriteNotes(out io.Writer) error {
	var notes strings.Builder
	if i.Other > 0 {
		fmt.Fprintf(&notes, "Skipped: %s not about an event.\n", term.Count(i.Other, "line"))
	}
	if i.Undecided > 0 {
		events := term.Count(i.Undecided, "event")
		fmt.Fprintf(&notes, "Skipped: %s that no limit decided (dead or expired).\n", events)
	}
	if i.Unread > 0 {
		fmt.Fprintf(&notes, "Skipped: %s that could not be read:\n", term.Count(i.Unread, "line"))
		for _, err := range i.Bad {
			fmt.Fprintf(&notes, "  %s\n", term.Printable(err.Error()))
		}
		if more := i.Unread - len(i.Bad); more > 0 {
			fmt.Fprintf(&notes, "  and %d more\n", more)
		}
	}
	_, err := io.WriteString(out, notes.String())
	return err
}

// limitsText lists the limits: "100/30m overall, 10/30m per category, errors=20/30m".
func limitsText(rules ratelimit.Rules) string {
	limits := []string{rules.Global.String() + " overall"}
	for _, category := range slices.Sorted(maps.Keys(rules.Reserve)) {
		limits = append(limits, fmt.Sprintf("%d reserved for %s", rules.Reserve[category], category))
	}
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

// Write writes the verdict as a line of JSON with the names of the log, in one call of out's Write. line is
// the line number in the input. The error is out's.
func (v Verdict) Write(out io.Writer) error {
	line := struct {
		Line int `json:"line"`
		outcome.Record
	}{v.Line, outcome.Record{
		Time:       v.Time,
		EventID:    v.ID,
		Category:   v.Category,
		Source:     v.Source,
		Outcome:    v.Outcome,
		Reason:     v.Reason,
		RetryAfter: term.Seconds(v.RetryAfter),
		AtLeast:    v.AtLeast,
	}}
	if v.Tier.Count > 0 {
		line.Limit = v.Tier.String()
	}
	var text bytes.Buffer
	if err := term.NewJSON(&text).Encode(line); err != nil {
		return err
	}
	_, err := out.Write(text.Bytes())
	return err
}
