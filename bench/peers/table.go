package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type column struct {
	name   string
	value  func(*result) float64
	format string
	order  int // 1 if more is better, -1 if less is, 0 if neither
}

// columns returns the columns of the table. events is the size of a storm.
func columns(events int) []column {
	number := func(value func(*result) int) func(*result) float64 {
		return func(r *result) float64 { return float64(value(r)) }
	}
	return []column{
		{
			"events per second",
			func(r *result) float64 { return r.median(func(t timed) float64 { return t.perSecond }) },
			"%.0f",
			1,
		},
		{
			"processor time per event, µs",
			func(r *result) float64 { return r.median(func(t timed) float64 { return t.each(t.cpu, events) }) },
			"%.1f",
			-1,
		},
		{
			"of it the worker's, µs",
			func(r *result) float64 { return r.median(func(t timed) float64 { return t.each(t.workers, events) }) },
			"%.1f",
			-1,
		},
		{
			"memory, MiB",
			func(r *result) float64 { return r.median(func(t timed) float64 { return mebibytes(t.memory) }) },
			"%.0f",
			-1,
		},
		{"in Slack", number(func(r *result) int { return r.messages }), "%.0f", 0},
		{"above the limit", number(func(r *result) int { return r.above }), "%.0f", -1},
		{"drops without a line", number(func(r *result) int { return r.silent }), "%.0f", -1},
		{"refused by Slack", number(func(r *result) int { return r.refused }), "%.0f", -1},
		{"`kill -9`: lost", number(func(r *result) int { return r.lost }), "%.0f", -1},
		{"`kill -9`: above the limit", number(func(r *result) int { return r.aboveKilled }), "%.0f", -1},
		{"`kill -9`: posted twice", number(func(r *result) int { return r.twice }), "%.0f", -1},
	}
}

// table formats the results in Markdown, and lists the columns that a peer wins. The best values of a column
// are bold unless all are equal.
func table(results []*result, events, rounds int) string {
	all := columns(events)
	var text strings.Builder
	fmt.Fprintf(&text, "%d events, median of %d storms; the best of a column are bold:\n\n|", events, rounds)
	for _, c := range all {
		fmt.Fprintf(&text, " | %s", c.name)
	}
	text.WriteString(" |\n|" + strings.Repeat(" --- |", len(all)+1) + "\n")
	for _, r := range results {
		fmt.Fprintf(&text, "| %s", r.peer.name)
		for _, c := range all {
			cell := c.cell(r)
			if best := c.best(results); slices.Contains(best, r) && len(best) < len(results) {
				cell = "**" + cell + "**"
			}
			fmt.Fprintf(&text, " | %s", cell)
		}
		text.WriteString(" |\n")
	}
	text.WriteString("\n" + wins(results, all) + "\n")
	return text.String()
}

func (c column) cell(r *result) string { return fmt.Sprintf(c.format, c.value(r)) }

// best returns the results that no other beats. Values that are printed alike are equal.
func (c column) best(results []*result) (best []*result) {
	if c.order == 0 {
		return nil
	}
	beats := func(a, b *result) bool {
		return c.cell(a) != c.cell(b) && float64(c.order)*(c.value(a)-c.value(b)) > 0
	}
	for _, r := range results {
		if !slices.ContainsFunc(results, func(other *result) bool { return beats(other, r) }) {
			best = append(best, r)
		}
	}
	return best
}

// wins names the columns in which a peer beats notifier.
func wins(results []*result, all []column) string {
	var won []string
	for _, c := range all {
		best := c.best(results)
		if len(best) > 0 && !slices.ContainsFunc(best, func(r *result) bool { return r.peer.ours }) {
			won = append(won, fmt.Sprintf("%s (%s)", c.name, best[0].peer.name))
		}
	}
	if len(won) == 0 {
		return "No peer is better than notifier in any column."
	}
	return "A peer is better than notifier in: " + strings.Join(won, "; ") + "."
}

func (r *result) median(figure func(timed) float64) float64 {
	var all []float64
	for _, t := range r.storms {
		all = append(all, figure(t))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// each returns the time per event in microseconds.
func (timed) each(d time.Duration, events int) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(events)
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
