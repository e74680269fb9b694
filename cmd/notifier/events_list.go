package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome/recent"
	"notifier/internal/term"
)

// eventList is one run of the command.
type eventList struct {
	filter recent.Filter
	since  time.Duration // 0: all
	json   bool
	out    io.Writer
	errOut io.Writer
}

func (l eventList) run(ctx context.Context, from outcomeSource) error {
	asked := l.filter
	asked.Limit++ // to know whether there are more
	answer, err := from.reader.List(ctx, asked)
	if errors.Is(err, recent.ErrNoStream) {
		return l.note(
			fmt.Sprintf(
				"no events: the stream %s does not exist yet, or does not allow direct reads; workers create it and record in it what becomes of events",
				from.place.Stream,
			),
		)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", from.place.Stream, err)
	}
	more := len(answer.Outcomes) > l.filter.Limit
	found := answer.Outcomes[:min(len(answer.Outcomes), l.filter.Limit)]
	slices.Reverse(found)
	if len(found) == 0 {
		return l.note(l.nothing(answer.Partial))
	}
	if l.json {
		err = l.writeJSON(found)
	} else {
		err = l.writeTable(found)
	}
	if err != nil {
		return err
	}
	return l.note(summary(found, more, answer.Partial))
}

// nothing says what an empty answer can mean.
func (l eventList) nothing(partial bool) string {
	of, within := "", "24 hours"
	if l.filter.Outcome != "" {
		of += " that were " + l.filter.Outcome
	}
	if l.filter.Category != "" {
		of += " of category " + l.filter.Category
	}
	if l.since > 0 {
		within = term.ShortDuration(l.since)
	}
	text := fmt.Sprintf(
		"no events%s within %s: there were none, or no worker could record them (its log says \"outcomes are not recorded\")",
		of,
		within,
	)
	if partial {
		text += "; there are older records that were not looked at, see -category"
	}
	return text
}

// summary is "3 events: 1 sent, 2 dropped", and what is missing.
func summary(found []recent.Outcome, more, partial bool) string {
	counts, leftOut, others := map[string]int{}, uint64(0), uint64(0)
	for _, o := range found {
		counts[o.Outcome]++
		leftOut += o.LeftOut
		others += o.LeftOutOthers
	}
	var parts []string
	for _, name := range recent.Outcomes() {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
		}
	}
	text := fmt.Sprintf("%s: %s", term.Count(len(found), "event"), strings.Join(parts, ", "))
	if more {
		text += "; older ones are not shown, see -n"
	}
	if leftOut > 0 {
		text += fmt.Sprintf("; %d more like them were not recorded, the log has them", leftOut)
	}
	if others > 0 {
		text += fmt.Sprintf("; neither were %d of other categories", others)
	}
	if partial {
		text += "; there are older records that were not looked at"
	}
	return text
}

// note is for people: with -json it goes to standard error.
func (l eventList) note(text string) error {
	out := l.out
	if l.json {
		out = l.errOut
	}
	_, err := fmt.Fprintln(out, term.Printable(text))
	return err
}

func (l eventList) writeTable(found []recent.Outcome) error {
	table := term.NewTable(l.out)
	table.Row("when", "category", "outcome", "reason", "detail", "event id", "source")
	for _, o := range found {
		table.Row(
			o.Time.UTC().Format(time.RFC3339),
			term.Cell(o.Category),
			o.Outcome,
			term.Cell(o.Reason),
			term.Cell(o.Summary()),
			term.Cell(o.EventID),
			term.Cell(o.Source),
		)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(l.out)
	return err
}

func (l eventList) writeJSON(found []recent.Outcome) error {
	buffered := bufio.NewWriter(l.out)
	encoder := term.NewJSON(buffered)
	for _, o := range found {
		if err := encoder.Encode(o); err != nil {
			return err
		}
	}
	return buffered.Flush()
}
