package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"notifier/internal/ratelimit"
	"notifier/internal/stats"
	"notifier/internal/status"
)

// mostHolders is how many holders of slots are named.
const mostHolders = 10

// statusTable is the status for people.
func statusTable(now status.Status, screen terminal) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, by the clock of Redis. Counts are of the last hour.\n\n", now.Time.Format(time.RFC3339))
	writeScopes(&text, now, screen)
	if now.More > 0 {
		fmt.Fprintf(&text, "and %s more\n", counted(now.More, "category"))
	}
	text.WriteByte('\n')
	writeHolders(&text, now)
	writeOutcomes(&text, now)
	writeWaits(&text, now, screen)
	return text.String()
}

// writeScopes writes a row per tier: the global limit's first, then the categories'. Full ones stand out.
func writeScopes(text *strings.Builder, now status.Status, screen terminal) {
	scopes := append([]status.Scope{now.Global}, now.Categories...)
	width := 0
	for _, scope := range scopes {
		width = max(width, utf8.RuneCountInString(scopeName(scope)))
	}
	var rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, cells ...any) {
		fmt.Fprintf(table, "%-*s\t", width, name)
		for _, cell := range cells {
			fmt.Fprintf(table, "%v\t", cell)
		}
		fmt.Fprintln(table)
	}
	row("scope", "limit", "used", "next free slot", "sent", "dropped", "last sent")
	full := []bool{false}
	for _, scope := range scopes {
		for i, tier := range scope.Tiers {
			name, sent, dropped, last := scopeName(scope), fmt.Sprint(scope.Sent), fmt.Sprint(scope.Dropped), "-"
			if scope.LastSent != nil {
				last = ago(now.Time.Sub(*scope.LastSent))
			}
			if i > 0 { // further tiers of the scope above
				name, sent, dropped, last = "", "", "", ""
			}
			row(name, tier.Limit, fmt.Sprintf("%d/%d", tier.Used, tier.Max), freeText(now.Time, tier), sent, dropped, last)
			full = append(full, tier.FreeS > 0)
		}
	}
	_ = table.Flush() // a strings.Builder takes everything
	for i, line := range strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n") {
		if full[i] {
			line = screen.paint(yellow, line)
		}
		fmt.Fprintln(text, line)
	}
}

func scopeName(scope status.Scope) string {
	if scope.Category == "" {
		return "global"
	}
	return scope.Category
}

// freeText says when an event of one slot fits: "now", or "in 4m12s (14:32:07)" in this machine's time zone.
func freeText(now time.Time, tier status.Tier) string {
	if tier.FreeS <= 0 {
		return "now"
	}
	wait := time.Duration(tier.FreeS * float64(time.Second))
	return fmt.Sprintf("in %s (%s)", short(wait), now.Add(wait).Local().Format(time.TimeOnly))
}

func short(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(time.Millisecond)
	}
	return ratelimit.ShortDuration(d)
}

func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return short(d) + " ago"
}

// writeHolders says who holds the slots of the longest global window.
func writeHolders(text *strings.Builder, now status.Status) {
	if len(now.Slots) == 0 {
		text.WriteString("All global slots are free.\n")
		return
	}
	held := map[string]int{}
	for _, slot := range now.Slots {
		held[slot.Category]++
	}
	names := slices.SortedFunc(maps.Keys(held), func(a, b string) int {
		if held[a] != held[b] {
			return held[b] - held[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names[:min(len(names), mostHolders)] {
		label := name
		if name == "" {
			label = "no longer known"
		}
		parts = append(parts, fmt.Sprintf("%s %d", label, held[name]))
	}
	if rest := len(names) - mostHolders; rest > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", rest))
	}
	fmt.Fprintf(text, "Global slots are held by: %s.\n", strings.Join(parts, ", "))
}

func writeOutcomes(text *strings.Builder, now status.Status) {
	var parts []string
	for _, outcome := range now.Outcomes {
		name := outcome.Outcome
		if outcome.Reason != "" {
			name += " " + outcome.Reason
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, outcome.N))
	}
	if len(parts) == 0 {
		parts = []string{"no event was settled"}
	}
	fmt.Fprintf(text, "Last hour: %s.\n", strings.Join(parts, ", "))
}

// refusedChannels are the channels that refuse everything, each once, with Slack's code.
func refusedChannels(replicas []stats.Replica) []string {
	codes := map[string]string{}
	for _, replica := range replicas {
		maps.Copy(codes, replica.Refused)
	}
	var lines []string
	for _, channel := range slices.Sorted(maps.Keys(codes)) {
		lines = append(lines, fmt.Sprintf("%s refuses everything (%s)", channel, codes[channel]))
	}
	return lines
}

// writeWaits says which replicas run and what they wait for.
func writeWaits(text *strings.Builder, now status.Status, screen terminal) {
	if now.CooldownS > 0 {
		fmt.Fprintln(text, screen.paint(yellow, fmt.Sprintf("Slack has asked for a pause: %s are left.", short(time.Duration(now.CooldownS*float64(time.Second))))))
	}
	ready := 0
	for _, replica := range now.Replicas {
		if replica.Ready {
			ready++
		}
	}
	if len(now.Replicas) == 0 {
		fmt.Fprintln(text, screen.paint(red, "No replica was seen in the last minute."))
		return
	}
	fmt.Fprintf(text, "Replicas: %d, ready %d.\n", len(now.Replicas), ready)
	for _, channel := range refusedChannels(now.Replicas) {
		fmt.Fprintln(text, screen.paint(red, "  channel "+channel+"; its events are dead-lettered"))
	}
	for _, replica := range now.Replicas {
		for _, wait := range replica.Waits {
			line := fmt.Sprintf("  %s waits for %s for %s and holds %s: %s", replica.ID, wait.For, short(now.Time.Sub(wait.Since)), counted(replica.Held, "event"), wait.Reason)
			fmt.Fprintln(text, screen.paint(yellow, line))
		}
	}
}
