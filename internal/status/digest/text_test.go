package digest

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"notifier/internal/status/stats"
)

func TestText(t *testing.T) {
	own := func(category string, n int64) stats.Drop {
		return stats.Drop{Reason: "category", Limit: "10/30m", Category: category, Count: n}
	}
	global := func(category string, n int64) stats.Drop {
		return stats.Drop{Reason: "global", Limit: "100/30m", Category: category, Count: n}
	}
	group := func(category string, n int64) stats.Drop {
		return stats.Drop{Reason: "group", Limit: "50/24h:15m", Category: category, Count: n}
	}
	var many []stats.Drop
	for i := range 33 {
		many = append(many, own(fmt.Sprintf("c%02d", i), int64(100-i)))
	}
	for _, test := range []struct {
		period time.Duration
		drops  []stats.Drop
		free   string
		want   string
	}{
		{30 * time.Minute, []stats.Drop{global("deploys", 32), own("errors", 380)}, "Next free global slot: 14:32.",
			"In the last 30 minutes 412 events were not sent: 380 of errors (its limit 10/30m) and 32 of deploys (the global limit 100/30m). Next free global slot: 14:32."},
		{40 * time.Second, []stats.Drop{own("errors", 1)}, "",
			"In the last 40 seconds 1 event was not sent: 1 of errors (its limit 10/30m)."},
		{3*time.Hour + 20*time.Minute, []stats.Drop{global("errors", 2), own("errors", 5)}, "",
			"In the last 3 hours and 20 minutes 7 events were not sent: 7 of errors (5 by its limit 10/30m, 2 by the global limit 100/30m)."},
		{time.Hour, []stats.Drop{group("team-a.job1", 9), own("team-a.job1", 3), group(stats.OtherCategory, 2)}, "",
			"In the last hour 14 events were not sent: 12 of team-a.job1 (9 by the limit of its group 50/24h:15m, 3 by its limit 10/30m) and 2 of other categories."},
		{91 * time.Minute, []stats.Drop{own("errors", 1), {Reason: "muted", Limit: "-", Category: "errors", Count: 2}, {Reason: "muted", Limit: "-", Category: "x", Count: 1}}, "",
			"In the last 91 minutes 4 events were not sent: 3 of errors (2 muted, 1 by its limit 10/30m) and 1 of x (muted)."},
		{2 * time.Hour, []stats.Drop{own("<!channel>&co\u202e\u2028", 2), own("<http://x|y>", 1)}, "",
			"In the last 2 hours 3 events were not sent: 2 of &lt;!channel&gt;&amp;co?? (its limit 10/30m) and 1 of &lt;http://x|y&gt; (its limit 10/30m)."},
		{0, []stats.Drop{{Reason: "category", Limit: "-", Category: stats.OtherCategory, Count: 4}}, "",
			"In the last second 4 events were not sent: 4 of various categories."},
		{time.Minute, []stats.Drop{own("errors", 1), own(stats.OtherCategory, 4), global(stats.OtherCategory, 5)}, "",
			"In the last minute 10 events were not sent: 1 of errors (its limit 10/30m) and 9 of other categories."},
	} {
		if got := text(test.period, test.drops, test.free, blame{}); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	got := text(time.Hour, many, "", blame{})
	if !strings.HasSuffix(got, "81 of c19 (its limit 10/30m) and 962 of 13 other categories.") {
		t.Error(got)
	}
	if got := text(time.Hour, many[:21], "", blame{}); !strings.HasSuffix(got, " and 80 of 1 other category.") {
		t.Error(got)
	}
	if got := text(time.Hour, append(many, own(stats.OtherCategory, 38)), "", blame{}); !strings.HasSuffix(got, " and 1000 of more than 13 other categories.") {
		t.Error(got)
	}
	said(t, got)
}

// However long the names and the limits are, Slack takes the message in an edit too.
func TestTextIsBounded(t *testing.T) {
	var drops []stats.Drop
	for i := range 100 {
		for _, reason := range []string{"global", "group", "category"} {
			drops = append(drops, stats.Drop{
				Reason: reason, Category: fmt.Sprintf("%03d", i) + strings.Repeat("&", 125), Count: 1_000_000_000,
				Limit: strings.Repeat("1000000/743h59m59.999999s+", 7) + "1000000/743h59m59.999999s",
			})
		}
	}
	var worst []stats.SourceCount // nobody has that many, and each would be named
	for _, drop := range drops {
		worst = append(worst, stats.SourceCount{Category: drop.Category, Source: strings.Repeat("&", 128), Refused: 1_000_000_000})
	}
	drops = append(drops, stats.Drop{Reason: "global", Limit: "1/1s", Category: "bad\xffbytes", Count: 1 << 40})
	got := text(24*time.Hour, drops, freeText(time.Now(), 31*24*time.Hour), blame{slots: []stats.SourceSlot{{End: time.Now(), Counts: worst}}})
	if n := utf8.RuneCountInString(got); n > 4000 || !utf8.ValidString(got) {
		t.Errorf("%d characters, want at most 4000: %s", n, got)
	}
	if !strings.Contains(got, "&amp;…") || strings.Contains(got, "&&") {
		t.Error(got)
	}
}

func TestFreeText(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 30, 10, 0, time.UTC)
	for wait, want := range map[time.Duration]string{
		0: "The global limit has room now.",
		// 14:31:30, which Slack would show as 14:31
		80 * time.Second: "Next free global slot: <!date^1795185120^{time}|14:32 UTC>.",
		50 * time.Second: "Next free global slot: <!date^1795185060^{time}|14:31 UTC>.",
		24 * time.Hour:   "Next free global slot: <!date^1795271460^{date_short_pretty} at {time}|2026-11-21 14:31 UTC>.",
	} {
		if got := freeText(now, wait); got != want {
			t.Errorf("in %s: %s, want %s", wait, got, want)
		}
	}
}

func TestMerge(t *testing.T) {
	var old, more []stats.Drop
	for i := range 80 {
		old = append(old, stats.Drop{Reason: "global", Limit: "1/1s", Category: fmt.Sprint("c", i), Count: 1})
		more = append(more, stats.Drop{Reason: "global", Limit: "1/1s", Category: fmt.Sprint("c", i+60), Count: 2})
	}
	merged := merge(old, more)
	if total(merged) != 240 || len(merged) != stats.MaxCategories+1 {
		t.Errorf("%d drops in %d entries", total(merged), len(merged))
	}
	for _, drop := range merged {
		if want := map[string]int64{"c0": 1, "c70": 3, "c99": 2, stats.OtherCategory: 80}[drop.Category]; want > 0 && drop.Count != want {
			t.Errorf("%+v, want %d", drop, want)
		}
	}
	if old[70].Count != 1 {
		t.Error("what was given has changed")
	}
}
