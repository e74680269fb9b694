package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// mostHolders is how many holders of slots are named.
const mostHolders = 10

// Table is the status for people.
func (s Status) Table(screen term.Screen) string {
	var text strings.Builder
	s.Summary.write(&text, screen)
	fmt.Fprintf(&text, "\n%s, by the clock of Redis. Counts cover the last hour.\n", s.Time.Format(time.RFC3339))
	s.writeScopes(&text, screen)
	if s.MoreGroups > 0 {
		fmt.Fprintf(&text, "and at least %s more\n", term.Count(s.MoreGroups, "group"))
	}
	if s.More > 0 {
		fmt.Fprintf(&text, "and %s more\n", term.Count(s.More, "category"))
	}
	text.WriteByte('\n')
	fmt.Fprintln(&text, term.Printable(s.holdersText()))
	s.writeReserves(&text, screen)
	s.writeOutcomes(&text)
	s.writeSources(&text)
	s.writeReplicas(&text)
	return text.String()
}

// writeScopes writes a row per tier: the global limit's first, then the groups', then the categories'. Full
// ones are highlighted.
func (s Status) writeScopes(text *strings.Builder, screen term.Screen) {
	var rows strings.Builder
	table := term.NewNumberTable(&rows)
	table.Row("scope", "limit", "used", "next free slot", "sent", "dropped", "last sent")
	full := []bool{false}
	for _, scope := range slices.Concat([]Scope{s.Global}, s.Groups, s.Categories) {
		for i, tier := range scope.Tiers {
			name, sent, dropped, last := scopeName(scope), fmt.Sprint(scope.Sent), fmt.Sprint(scope.Dropped), "-"
			if scope.LastSent != nil {
				last = ago(s.Time.Sub(*scope.LastSent))
			}
			if i > 0 { // further tiers of the scope above
				name, sent, dropped, last = "", "", "", ""
			}
			table.Row(
				name,
				tier.Limit,
				fmt.Sprintf("%d/%d", tier.Used, tier.Max),
				s.freeText(scope, i),
				sent,
				dropped,
				last,
			)
			full = append(
				full,
				tier.FreeS > 0 || tier.keptOnly() || i == 0 && scope.Forecast != nil && !scope.Forecast.Sends,
			)
		}
	}
	_ = table.Flush() // a strings.Builder takes everything
	for i, line := range strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n") {
		if full[i] {
			line = screen.Paint(term.Yellow, line)
		}
		fmt.Fprintln(text, line)
	}
}

// scopeName is the scope for people. No category has a space in it, so none looks like a group.
func scopeName(scope Scope) string {
	switch {
	case scope.Category != "":
		return scope.Category
	case scope.Group != "":
		return "group " + scope.Group
	default:
		return "global"
	}
}

// freeText is when an event of one slot fits: in the first row of a scope into all its limits, in further
// rows into the tier.
func (s Status) freeText(scope Scope, tier int) string {
	own, f := scope.level(), scope.Forecast
	if f == nil || tier > 0 ||
		f.Reason == own && f.Kept == 0 { // each tier of the scope itself shows its own time
		at := scope.Tiers[tier].roomAt(s.Time)
		f = &Forecast{Sends: scope.Tiers[tier].FreeS <= 0, Reason: own, At: &at, AtLeast: scope.Tiers[tier].AtLeast}
	}
	return f.Cell(s.Time, own)
}

func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return term.Duration(d) + " ago"
}

// holdersText is who holds the slots of the longest global window.
func (s Status) holdersText() string {
	if s.InBuckets {
		return "Who holds the global slots is not known: the limit is counted in buckets, without the events."
	}
	if len(s.Holders) == 0 {
		return "All global slots are free."
	}
	var parts []string
	for _, holder := range s.Holders {
		parts = append(parts, fmt.Sprintf("%s %d", cmp.Or(holder.Category, "unknown"), holder.Slots))
	}
	if s.Others > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", s.Others))
	}
	text := fmt.Sprintf("Global slots are held by: %s.", strings.Join(parts, ", "))
	if s.Unread > 0 {
		text += fmt.Sprintf(" Who holds the other %d is not known.", s.Unread)
	}
	return text
}

// reservesText is for whom slots of the global limit are kept; empty: for nobody.
func (s Status) reservesText() string {
	if len(s.Reserves) == 0 {
		return ""
	}
	var parts []string
	for _, reserve := range s.Reserves {
		parts = append(parts, fmt.Sprintf("%s %d of %d", reserve.Category, reserve.Kept, reserve.Slots))
	}
	if s.MoreReserves > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", s.MoreReserves))
	}
	return fmt.Sprintf("Global slots are kept for: %s.", strings.Join(parts, ", "))
}

// writeReserves writes for whom slots of the global limit are kept, and whether others still have any.
func (s Status) writeReserves(text *strings.Builder, screen term.Screen) {
	if len(s.Reserves) == 0 {
		return
	}
	fmt.Fprintln(text, term.Printable(s.reservesText()))
	for _, tier := range s.Global.Tiers {
		if tier.keptOnly() {
			line := fmt.Sprintf(
				"Of %s only %s left, and all are kept: other categories are dropped.",
				tier.Limit,
				term.CountAre(tier.Max-tier.Used, "slot"),
			)
			fmt.Fprintln(text, screen.Paint(term.Yellow, term.Printable(line)))
		}
	}
}

func (s Status) writeOutcomes(text *strings.Builder) {
	var parts []string
	for _, outcome := range s.Outcomes {
		parts = append(parts, fmt.Sprintf("%s %d", term.Printable(outcome.name()), outcome.N))
	}
	if len(parts) == 0 {
		parts = []string{"no events were settled"}
	}
	fmt.Fprintf(text, "Last hour: %s%s.\n", strings.Join(parts, ", "), s.lastDropText())
}

// lastDropText is when something was last dropped, at the earliest: counts are by the minute. Empty: nothing was
// in the last hour, or it is not known.
func (s Status) lastDropText() string {
	for _, minute := range slices.Backward(s.Global.Minutes) {
		if minute.Dropped > 0 {
			return fmt.Sprintf("; the last drop at most %s ago", term.Duration(s.Time.Sub(minute.Start)))
		}
	}
	return ""
}

// writeReplicas writes how many replicas run. Ready ones can be without use, as long as nothing is sent.
func (s Status) writeReplicas(text *strings.Builder) {
	known := len(stats.Running(s.Replicas))
	fmt.Fprintf(text, "Replicas: %d", known+s.MoreReplicas)
	if s.Summary.Level != LevelBad {
		fmt.Fprintf(text, ", ready %d", s.Ready)
	}
	if silent := len(s.Replicas) - known; silent > 0 {
		fmt.Fprintf(text, ", silent %d", silent)
	}
	text.WriteString(".\n")
}
