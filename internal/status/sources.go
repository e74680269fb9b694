package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Bounds of what is shown of sources.
const (
	tableSources    = 3  // of a category in the table
	tableCategories = 10 // with sources in the table
	fewSources      = 3  // of a category as long as there is room for them in the JSON
	fewWithSources  = 20 // categories, the same
)

// sourcesOf are the categories of which at least one source is known, each with its sources: those with the
// most refused first, then what stands for further ones and for events that name none.
func sourcesOf(slots []stats.SourceSlot) map[string][]stats.SourceCount {
	sources := stats.SumSources(slots)
	maps.DeleteFunc(sources, func(_ string, counts []stats.SourceCount) bool { return !counts[0].Named() })
	return sources
}

// byRefused are the categories with sources, those with the most refused events first.
func (s Status) byRefused() []string {
	total := func(category string) (refused, all int64) {
		for _, count := range s.Sources[category] {
			refused, all = refused+count.Refused, all+count.Total
		}
		return refused, all
	}
	categories := slices.Collect(maps.Keys(s.Sources))
	slices.SortFunc(categories, func(a, b string) int {
		refusedOfA, allOfA := total(a)
		refusedOfB, allOfB := total(b)
		return cmp.Or(cmp.Compare(refusedOfB, refusedOfA), cmp.Compare(allOfB, allOfA), cmp.Compare(a, b))
	})
	return categories
}

// shortenSources leaves out the sources past the first ones of each category, and reports whether there were
// any.
func (s *Status) shortenSources(most int) bool {
	shortened := false
	for category, counts := range s.Sources {
		if len(counts) > most {
			s.Sources[category], shortened = counts[:most], true
		}
	}
	return shortened
}

// leaveOutSources leaves out those of half of the categories, of which the least was refused.
func (s *Status) leaveOutSources() {
	for _, category := range s.byRefused()[len(s.Sources)/2:] {
		delete(s.Sources, category)
		s.MoreSources++
	}
}

// writeSources writes who has caused the events of the categories of which that is known.
func (s Status) writeSources(text *strings.Builder) {
	if len(s.Sources) == 0 {
		return
	}
	text.WriteString("Sources of the last hour, as publishers name them:\n")
	var rows strings.Builder
	table := term.NewTable(&rows).Indent("  ")
	categories := s.byRefused()
	shown := categories[:min(len(categories), tableCategories)]
	for _, category := range shown {
		name := term.Cell(category)
		for _, count := range s.Sources[category][:min(len(s.Sources[category]), tableSources)] {
			table.Row(
				name,
				sourceName(count),
				fmt.Sprintf("%s, %d refused", term.Count(count.Total, "event"), count.Refused),
			)
			name = ""
		}
	}
	_ = table.Flush() // a strings.Builder takes everything
	text.WriteString(rows.String())
	if more := len(categories) - len(shown) + s.MoreSources; more > 0 {
		fmt.Fprintf(text, "  and those of %s more\n", term.Count(more, "category"))
	}
}

// sourceName is a source for people.
func sourceName(count stats.SourceCount) string {
	switch count.Source {
	case "":
		return "(none named)"
	case stats.OtherSource:
		return "(other sources)"
	}
	return term.Printable(count.Source)
}
