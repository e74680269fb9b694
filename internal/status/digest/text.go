package digest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/slackout/markup"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

const (
	maxRows      = 10
	maxNameBytes = 60 // of a category
)

// row holds the drops of one category.
type row struct {
	category string
	n        int64
	drops    []report.Drop // largest first
}

// text returns the message about the drops of an interval.
func text(interval time.Duration, drops []report.Drop) string {
	limits, mutes := rowsOf(drops)
	var parts []string
	if n := total(limits); n > 0 {
		parts = append(parts, term.Count(n, "event")+" over a limit")
	}
	if n := total(mutes); n > 0 {
		parts = append(parts, fmt.Sprintf("%d muted", n))
	}
	lines := []string{"Not sent in the last " + term.ShortDuration(interval) + ": " + strings.Join(parts, ", ")}
	for _, r := range limits[:min(len(limits), maxRows)] {
		lines = append(lines, "• "+r.line())
	}
	if rest := limits[min(len(limits), maxRows):]; len(rest) > 0 {
		lines = append(lines, "• "+restLine(rest))
	}
	if len(mutes) > 0 {
		var names []string
		for _, r := range mutes[:min(len(mutes), maxRows)] {
			names = append(names, fmt.Sprintf("%s %d", r.name(), r.n))
		}
		if rest := mutes[min(len(mutes), maxRows):]; len(rest) > 0 {
			names = append(names, restLine(rest))
		}
		lines = append(lines, "Muted: "+strings.Join(names, ", "))
	}
	return strings.Join(lines, "\n")
}

// rowsOf groups the drops by category, the largest row first.
func rowsOf(drops []report.Drop) (limits, mutes []row) {
	limited, muted := map[string]row{}, map[string]row{}
	for _, d := range drops {
		rows := limited
		if d.Reason == outcome.Muted {
			rows = muted
		}
		r := rows[d.Category]
		r.category, r.n, r.drops = d.Category, r.n+d.N, append(r.drops, d)
		rows[d.Category] = r
	}
	return sorted(limited), sorted(muted)
}

func sorted(byCategory map[string]row) []row {
	var rows []row
	for _, r := range byCategory {
		slices.SortFunc(r.drops, func(a, b report.Drop) int {
			return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Reason, b.Reason))
		})
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.category, b.category))
	})
	return rows
}

func total(rows []row) (n int64) {
	for _, r := range rows {
		n += r.n
	}
	return n
}

// line is "`errors`: 380 (370 category limit, 10 global limit)".
func (r row) line() string {
	limits := make([]string, len(r.drops))
	for i, d := range r.drops {
		limits[i] = d.Reason + " limit"
		if len(r.drops) > 1 {
			limits[i] = fmt.Sprintf("%d %s", d.N, limits[i])
		}
	}
	return fmt.Sprintf("%s: %d (%s)", r.name(), r.n, strings.Join(limits, ", "))
}

func restLine(rows []row) string {
	return fmt.Sprintf("and %d more in %s", total(rows), term.Count(len(rows), "category"))
}

// name returns the category for a message, as inline code. A publisher chose it, and Slack would format a
// text such as *errors* and link a category such as ci.example. In code only &, < and > have a meaning, which
// are escaped, and the backtick that ends it.
func (r row) name() string {
	if r.category == outcome.OtherCategories {
		return "other categories"
	}
	name := strings.ReplaceAll(term.Printable(outcome.CategoryOf(r.category)), "`", "'")
	return "`" + markup.Escape(term.Cut(name, maxNameBytes)) + "`"
}
