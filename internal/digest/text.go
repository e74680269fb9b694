package digest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"notifier/internal/markup"
	"notifier/internal/outcome"
	"notifier/internal/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Bounds of a message. Slack accepts 4,000 characters when a message is edited.
const (
	mostNamed   = 20   // most categories that are named
	longestList = 3000 // characters up to which they are named; the rest are counted
	longestName = 60   // characters of a category that are shown
)

// group is what the message reports about one category.
type group struct {
	category string
	total    int64
	drops    []stats.Drop
}

// text returns the message: what was dropped in a period, and the sentence free about the next slot, which may be empty.
func text(period time.Duration, drops []stats.Drop, free string) string {
	groups, other := grouped(drops)
	n := total(drops)
	were := "notifications were"
	if n == 1 {
		were = "notification was"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "In the last %s %d %s not sent: ", periodText(period), n, were)
	named := 0
	for _, g := range groups {
		entry := g.text()
		if named == mostNamed || b.Len()+len(entry) > longestList {
			break
		}
		if named > 0 {
			b.WriteString(", ")
		}
		b.WriteString(entry)
		named++
	}
	b.WriteString(restText(groups[named:], other, named > 0))
	b.WriteString(".")
	if free != "" {
		b.WriteString(" " + free)
	}
	return b.String()
}

// grouped groups the drops by category, the largest group first; other counts those of categories without a name.
func grouped(drops []stats.Drop) (groups []group, other int64) {
	byCategory := map[string]*group{}
	for _, drop := range drops {
		if drop.Category == stats.OtherCategory {
			other += drop.Count
			continue
		}
		g := byCategory[drop.Category]
		if g == nil {
			g = &group{category: drop.Category}
			byCategory[drop.Category] = g
		}
		g.total += drop.Count
		g.drops = append(g.drops, drop)
	}
	for _, g := range byCategory {
		slices.SortFunc(g.drops, func(a, b stats.Drop) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Limit, b.Limit))
		})
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.category, b.category))
	})
	return groups, other
}

// text is "errors 380 (its limit 10/30m)", or with several limits "errors 380 (its limit 10/30m 370, global limit 100/30m 10)".
func (g group) text() string {
	limits := make([]string, len(g.drops))
	for i, drop := range g.drops {
		limits[i] = limitText(drop)
		if len(g.drops) > 1 {
			limits[i] += fmt.Sprintf(" %d", drop.Count)
		}
	}
	return fmt.Sprintf("%s %d (%s)", escape(shorten(g.category)), g.total, strings.Join(limits, ", "))
}

func limitText(drop stats.Drop) string {
	name := "its limit"
	switch drop.Reason {
	case outcome.Global:
		name = "global limit"
	case outcome.Group:
		name = "its group's limit"
	case outcome.Muted:
		name = "muted"
	}
	if drop.Limit == "-" { // unknown
		return name
	}
	return name + " " + escape(drop.Limit)
}

// restText summarises the categories that are not named. How many of them stats.Other stands for is unknown.
func restText(groups []group, other int64, more bool) string {
	if len(groups) == 0 && other == 0 {
		return ""
	}
	n := other
	for _, g := range groups {
		n += g.total
	}
	word := "categories"
	if len(groups) == 1 && other == 0 {
		word = "category"
	}
	count := fmt.Sprint(len(groups))
	switch {
	case len(groups) == 0:
		count = "some"
	case other > 0:
		count = "over " + count
	}
	if !more {
		return fmt.Sprintf("%s %s %d", count, word, n)
	}
	return fmt.Sprintf(", and %s more %s %d", count, word, n)
}

// periodText is a time in words, rounded to what a reader cares about: 40 s, 52 min, 3 h 20 min.
func periodText(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(1, d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d.Round(time.Minute)/time.Minute)
	}
	d = d.Round(time.Minute)
	if minutes := d % time.Hour / time.Minute; minutes > 0 {
		return fmt.Sprintf("%d h %d min", d/time.Hour, minutes)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// freeText is the sentence about when the global limit has room again, in each reader's own time zone. Slack shows whole
// minutes, so the time is rounded up: at 14:32 there is room.
func freeText(now time.Time, wait time.Duration) string {
	if wait <= 0 {
		return "There is room now."
	}
	return fmt.Sprintf("Next free slot %s.", momentText(now, now.Add(wait)))
}

// mostMutes is how many mutes are named.
const mostMutes = 5

// mutedText is the sentence about what is muted, until when; empty: nothing is.
func mutedText(now time.Time, orders []steering.Order) string {
	var parts []string
	more := 0
	for _, o := range orders {
		switch {
		case o.Kind != steering.Mute || !o.Until.After(now):
		case len(parts) == mostMutes:
			more++
		default:
			parts = append(parts, escape(shorten(o.Target))+" until "+momentText(now, o.Until))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return "Muted: " + strings.Join(parts, ", ") + "."
}

// momentText is a time as Slack shows it to each reader, rounded up to whole minutes.
func momentText(now, at time.Time) string {
	at = at.UTC()
	if whole := at.Truncate(time.Minute); whole.Before(at) {
		at = whole.Add(time.Minute)
	}
	shown, plain := "{time}", at.Format("15:04 UTC")
	if at.Sub(now) >= 20*time.Hour { // the time alone would look like today's
		shown, plain = "{date_short_pretty} at {time}", at.Format("2006-01-02 15:04 UTC")
	}
	return fmt.Sprintf("<!date^%d^%s|%s>", at.Unix(), shown, plain)
}

// escape neutralises a publisher's word: it is printable, and &, < and > begin no mention and no link.
func escape(word string) string { return markup.Escape(term.Printable(word)) }

func shorten(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if utf8.RuneCountInString(name) <= longestName {
		return name
	}
	return string([]rune(name)[:longestName-1]) + "…"
}
