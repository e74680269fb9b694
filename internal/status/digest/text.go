package digest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"notifier/internal/outcome"
	"notifier/internal/slackout/markup"
	"notifier/internal/status/stats"
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

// text returns the message: what was dropped in a period, by whom as far as that is known, and the sentence
// free about the next slot, which may be empty.
func text(period time.Duration, drops []stats.Drop, free string, who blame) string {
	groups, other := grouped(drops)
	n := total(drops)
	were := "were"
	if n == 1 {
		were = "was"
	}
	var parts []string
	length := 0
	for _, g := range groups {
		entry := g.text(who.mostOf(g.category, g.total))
		if length += len(entry); len(parts) == mostNamed || length > longestList {
			break
		}
		parts = append(parts, entry)
	}
	if rest := restText(groups[len(parts):], other, len(parts) > 0); rest != "" {
		parts = append(parts, rest)
	}
	sentence := fmt.Sprintf(
		"In the last %s %s %s not sent: %s.",
		periodText(period),
		term.Count(n, "event"),
		were,
		term.List(parts),
	)
	if free != "" {
		sentence += " " + free
	}
	return sentence
}

// grouped groups the drops by category, the largest group first; other counts those of categories without a
// name.
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
			return cmp.Or(
				cmp.Compare(b.Count, a.Count),
				cmp.Compare(a.Reason, b.Reason),
				cmp.Compare(a.Limit, b.Limit),
			)
		})
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.category, b.category))
	})
	return groups, other
}

// text is "380 of errors (its limit 10/30m)", or with several limits "380 of errors (370 by its limit 10/30m,
// 10 by the global limit 100/30m)", and who has caused them after that.
func (g group) text(who string) string {
	limits := make([]string, len(g.drops))
	for i, drop := range g.drops {
		limits[i] = limitText(drop)
		switch {
		case len(g.drops) == 1:
		case drop.Reason == outcome.Muted:
			limits[i] = fmt.Sprintf("%d %s", drop.Count, limits[i])
		default:
			limits[i] = fmt.Sprintf("%d by %s", drop.Count, limits[i])
		}
	}
	if who != "" {
		who = "; " + who
	}
	return fmt.Sprintf("%d of %s (%s%s)", g.total, escape(shorten(g.category)), strings.Join(limits, ", "), who)
}

func limitText(drop stats.Drop) string {
	name := "its limit"
	switch drop.Reason {
	case outcome.Global:
		name = "the global limit"
	case outcome.Group:
		name = "the limit of its group"
	case outcome.Muted:
		name = "muted"
	}
	if drop.Limit == "-" { // unknown
		return name
	}
	return name + " " + escape(drop.Limit)
}

// restText summarises the categories that are not named. How many of them stats.OtherCategory stands for is
// unknown.
func restText(groups []group, other int64, more bool) string {
	if len(groups) == 0 && other == 0 {
		return ""
	}
	n := other
	for _, g := range groups {
		n += g.total
	}
	whose := "other categories"
	switch {
	case !more && len(groups) == 0:
		whose = "various categories"
	case len(groups) > 0 && other > 0:
		whose = "more than " + term.Count(len(groups), "other category")
	case len(groups) > 0:
		whose = term.Count(len(groups), "other category")
	}
	return fmt.Sprintf("%d of %s", n, whose)
}

// periodText is a time in words, rounded to what a reader cares about, as it follows "In the last": 40
// seconds, 52 minutes, hour, 3 hours and 20 minutes.
func periodText(d time.Duration) string {
	d = max(time.Second, d.Round(time.Second))
	if d < time.Minute {
		return unitText(int(d/time.Second), "second")
	}
	d = d.Round(time.Minute)
	hours, minutes := int(d/time.Hour), int(d%time.Hour/time.Minute)
	switch {
	case d < 2*time.Hour && minutes > 0:
		return unitText(int(d/time.Minute), "minute")
	case minutes > 0:
		return term.Count(hours, "hour") + " and " + term.Count(minutes, "minute")
	}
	return unitText(hours, "hour")
}

// unitText leaves out the number of one: "in the last hour".
func unitText(n int, unit string) string {
	if n == 1 {
		return unit
	}
	return term.Count(n, unit)
}

// freeText is the sentence about when the global limit has room again, in each reader's own time zone. Slack
// shows whole minutes, so the time is rounded up: at 14:32 there is room.
func freeText(now time.Time, wait time.Duration) string {
	if wait <= 0 {
		return "The global limit has room now."
	}
	return fmt.Sprintf("Next free global slot: %s.", momentText(now, now.Add(wait)))
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
