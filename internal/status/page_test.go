package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
)

// sectionOf is a section of the page of a status.
func sectionOf(s Status, id string) PageSection {
	s.Time = now
	section, _ := NewPage(s, nil).ByID()[id].(PageSection)
	return section
}

// rowsOf are the rows of a section, as people read them.
func rowsOf(section PageSection) (rows []string) {
	if section.Table == nil {
		return nil
	}
	for _, row := range section.Table.Rows {
		var cells []string
		for _, cell := range row.Cells {
			text := cell.Text
			if cell.Time != nil {
				text = cell.Time.Format(time.TimeOnly)
			}
			for _, bar := range cell.Bars {
				text += bar.Text
			}
			cells = append(cells, strings.TrimSpace(text+" "+cell.Small))
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	return rows
}

func TestThePageSaysWhatIsLeftOfTheGlobalLimit(t *testing.T) {
	buckets := Tier{Limit: "100/24h:15m", Used: 40, Max: 100, Kept: 3}
	keptOnly := buckets
	keptOnly.Used = 97
	for name, test := range map[string]struct {
		tier Tier
		want PageBar
	}{
		"room":      {Tier{Limit: "100/30m", Max: 100}, PageBar{Text: "0 of 100 in 30m", Max: 100, Width: "0.0", Room: &PageCell{Text: "room now"}}},
		"fixed":     {Tier{Limit: "9/1h:fixed", Used: 1, Max: 9}, PageBar{Text: "1 of 9 in the current 1h", Used: 1, Max: 9, Width: "11.1", Room: &PageCell{Text: "room now"}}},
		"buckets":   {buckets, PageBar{Text: "40 of 100 in 24h, by 15m, 3 kept", Used: 40, Max: 100, Width: "40.0", Room: &PageCell{Text: "room now"}}},
		"kept only": {keptOnly, PageBar{Text: "97 of 100 in 24h, by 15m, 3 kept", Used: 97, Max: 100, Width: "97.0", Full: true, Room: &PageCell{Text: "room only for those it is kept for"}}},
		"full": {Tier{Limit: "9/1h", Used: 12, Max: 9, FreeS: 90}, PageBar{
			Text: "12 of 9 in 1h", Used: 9, Max: 9, Width: "100.0", Full: true,
			Room: &PageCell{Time: new(now.Add(90 * time.Second)), Small: "in 1m30s, full until then"},
		}},
	} {
		test.want.Label = "Global limit " + test.tier.Limit
		got := NewPage(Status{Time: now, Global: Scope{Tiers: []Tier{test.tier}}}, nil).Tiers
		if diff := cmp.Diff([]PageBar{test.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestThePageShowsScopes(t *testing.T) {
	later := now.Add(90 * time.Second)
	tiers := []Tier{{Limit: "10/30m", Used: 1, Max: 10}}
	scope := func(category string, forecast *Forecast) Scope {
		return Scope{Category: category, Tiers: tiers, Forecast: forecast, Minutes: []Minute{}}
	}
	s := Status{
		Groups: []Scope{{Group: "team-a", Tiers: []Tier{{Limit: "50/30m", Used: 50, Max: 50}}, NextFree: &later, LastSent: new(now.Add(-time.Minute)), Sent: 50, Dropped: 2}},
		Categories: []Scope{
			scope("room", &Forecast{Sends: true}), scope("full", &Forecast{Reason: outcome.Category, At: &later}),
			scope("of a group", &Forecast{Reason: outcome.Group, At: &later}), scope("waits", &Forecast{Reason: outcome.Global, At: &later}),
			scope("kept", &Forecast{Reason: outcome.Global, At: &later, Kept: 3, Left: 2}), scope("muted", &Forecast{Reason: muted, At: &later}),
			scope(stats.OtherCategory, nil),
		},
		MoreGroups: 150, More: 1,
		Sources: map[string][]stats.SourceCount{"room": {{Source: "a", Total: 12, Refused: 9}, {Source: stats.OtherSource, Total: 2}, {Total: 1}, {Source: "d", Total: 1}, {Source: "e", Total: 1}}},
	}
	groups, categories := sectionOf(s, "group-section"), sectionOf(s, "category-section")
	if diff := cmp.Diff([]string{"team-a | 50 of 50 in 30m | now | 50 | 2 | not drawn for so many | " + now.Add(-time.Minute).Format(time.TimeOnly) + " 1m ago"}, rowsOf(groups)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	at, rest := later.Format(time.TimeOnly), " | 0 | 0 |  | –"
	want := []string{
		"room from a 12 (9 refused), (other sources) 2, (none named) 1, and 2 more | 1 of 10 in 30m | now" + rest,
		"full | 1 of 10 in 30m | " + at + " in 1m30s" + rest,
		"of a group | 1 of 10 in 30m | " + at + " group limit, in 1m30s" + rest,
		"waits | 1 of 10 in 30m | " + at + " global limit, in 1m30s" + rest,
		"kept | 1 of 10 in 30m | " + at + " kept, in 1m30s" + rest,
		"muted | 1 of 10 in 30m | " + at + " muted, in 1m30s" + rest,
		"other categories | 1 of 10 in 30m | now" + rest,
	}
	if diff := cmp.Diff(want, rowsOf(categories)); diff != "" {
		t.Errorf("categories (-want +got):\n%s", diff)
	}
	notes := []string{groups.Note, groups.More, categories.Note, categories.More}
	if diff := cmp.Diff([]string{"151, 1 full", "and 150 more groups", "8", "and 1 more category"}, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if section := sectionOf(Status{}, "group-section"); section.ID != "" {
		t.Error("there is a section of groups without any")
	}
	if section := sectionOf(Status{}, "category-section"); section.More != "No categories yet." {
		t.Errorf("%+v", section)
	}
}

func TestThePageShowsWhoHoldsSlots(t *testing.T) {
	slot := func(id string, frees time.Duration) ratelimit.Slot {
		return ratelimit.Slot{ID: id, Category: strings.Trim(id, "-"), At: now, Frees: now.Add(frees)}
	}
	taken := func(n int) Scope {
		return Scope{Tiers: []Tier{{Limit: "9/1h", Used: n, Max: 9}, {Limit: "5/1m", Used: 5, Max: 5}}}
	}
	global := taken(3)
	all := []ratelimit.Slot{slot("c", 45*time.Minute), slot("b", 30*time.Minute), slot("-", 15*time.Minute)}
	for name, test := range map[string]struct {
		status                         Status
		note, text, holders, edge, row string
	}{
		"none":    {Status{Global: taken(0)}, "0 taken", "All slots are free.", "All global slots are free.", "", ""},
		"buckets": {Status{Global: global, InBuckets: true}, "counted in buckets", "3 slots of 9/1h taken. When each is free is not known: they are counted in buckets.", "Who holds the global slots is not known: the limit is counted in buckets, without the events.", "", ""},
		"one":     {Status{Global: taken(1), Slots: all[:1], Holders: []Holder{{"c", 1}}}, "1 taken", "1 slot of 9/1h is taken; it is free in 45m.", "Global slots are held by: c 1.", "M0 88.89H750.0V100.00", "c"},
		"three":   {Status{Global: global, Slots: all, Holders: []Holder{{"c", 1}, {"", 1}}, Others: 1}, "3 taken", "3 slots of 9/1h are taken. The first is free in 15m, half of them in 30m, all in 45m.", "Global slots are held by: c 1, unknown 1, and 1 more.", "M0 66.67H250.0V77.78H500.0V88.89H750.0V100.00", "c b unknown"},
		"cut":     {Status{Global: taken(8), Slots: all[:2], MoreSlots: 6, Unread: 5, Holders: []Holder{{"c", 1}, {"b", 2}}}, "8 taken", "8 slots of 9/1h are taken. Only the newest 2 are drawn: the first of them is free in 30m, all of them in 45m.", "Global slots are held by: c 1, b 2. Who holds the other 5 is not known.", "M0 11.11H500.0V88.89H750.0V100.00", "c b"},
		"no room": {Status{Global: global, MoreSlots: 3, Holders: []Holder{{"c", 3}}}, "3 taken", "3 slots of 9/1h taken. There is no room to show when each is free.", "Global slots are held by: c 3.", "", ""},
	} {
		section := sectionOf(test.status, "slots")
		var categories []string
		for _, row := range rowsOf(section) {
			categories = append(categories, strings.Split(row, " | ")[1])
		}
		got := []string{section.Note, section.Timeline.Text, section.Text.Text, section.Timeline.Edge, strings.Join(categories, " ")}
		if diff := cmp.Diff([]string{test.note, test.text, test.holders, test.edge, test.row}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if more := sectionOf(Status{Global: taken(8), Slots: all[:2]}, "slots").More; more != "and 6 more slots" {
		t.Errorf("more: %q", more)
	}
	if axis := sectionOf(Status{Global: global}, "slots").Timeline.Axis; !slices.Equal(axis, []string{"now", "15m", "30m", "45m", "1h"}) {
		t.Errorf("axis %q", axis)
	}
}

func TestThePageDrawsTheLastHour(t *testing.T) {
	begin := now.Truncate(time.Minute)
	s := Status{Global: Scope{Sent: 5, Dropped: 2, Minutes: []Minute{{begin.Add(-59 * time.Minute), 1, 0}, {begin.Add(-2 * time.Minute), 4, 2}}}}
	want := &PageChart{
		Sent: "M0.1 12v-2.88h.8V12zM57.1 12v-11.50h.8V12z", Dropped: "M57.1 12v5.75h.8V12z",
		Text: "5 sent and 2 dropped in the last hour; the busiest minute, 2m ago, had 4 sent and 2 dropped.",
	}
	if diff := cmp.Diff(want, sectionOf(s, "hour-section").Hour); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestThePageHasWordsForEachEnding: it explains each way in which an event can end.
func TestThePageHasWordsForEachEnding(t *testing.T) {
	all := []Outcome{{outcome.Sent, "", 4}}
	for _, reason := range append(outcome.LimitReasons(), outcome.Muted, outcome.Duplicate, outcome.Expired, outcome.Reply) {
		all = append(all, Outcome{outcome.Dropped, reason, 1})
	}
	for _, reason := range outcome.DeadReasons() {
		all = append(all, Outcome{outcome.Dead, reason, 1})
	}
	section := sectionOf(Status{Outcomes: all, Global: Scope{Sent: 4, Dropped: 6}}, "hour-section")
	for _, row := range section.Table.Rows {
		if row.Cells[1].Text == "" {
			t.Errorf("no words for %q", row.Cells[0].Text)
		}
	}
	if rows := rowsOf(section); rows[0] != "sent | in Slack | 4" || !strings.HasPrefix(rows[1], "dropped global | ") {
		t.Errorf("%q", rows)
	}
	if section.Note != "4 sent, 6 dropped, 5 dead" {
		t.Errorf("%q", section.Note)
	}
}

func TestThePageShowsChannelsOrdersAndReplicas(t *testing.T) {
	none := Status{}
	if got := sectionOf(none, "channel-section"); got.Note != "0 events waiting" || got.More == "" || got.List != nil {
		t.Errorf("channels without any: %+v", got)
	}
	if sectionOf(none, "steering-section").ID != "" || sectionOf(none, "reserve-section").ID != "" {
		t.Error("there are sections of orders and reserves without any")
	}
	if got := sectionOf(none, "replica-section"); got.Note != "none" || got.Table != nil || got.More != "No replica was seen within the last minute." {
		t.Errorf("replicas without any: %+v", got)
	}
	s := Status{
		Replicas:     []stats.Replica{{ID: "a", Seen: now, Heartbeat: stats.Heartbeat{Started: now, Version: "v1", Held: 2, Refused: map[string]string{"#gone": "is_archived"}, Waits: []stats.Wait{{For: "slack", Channel: "#alerts"}, {For: "redis"}}}}},
		MoreReplicas: 2, Ready: 2,
		Unposted:     []Unposted{{Channel: "#alerts", Events: 3, Text: "#alerts: 3"}},
		Pauses:       []Pause{{Channel: "#alerts", Text: "#alerts: paused"}},
		MoreSteering: 2,
		Reserves:     []ratelimit.Reserve{{Category: "payments", Slots: 5, Kept: 3}, {Category: "x", Slots: 1}}, MoreReserves: 1,
		Settings: Settings{Fingerprint: "abc", Replicas: 2, Warnings: []string{"LIMIT_GLOBAL differs"}},
	}
	for i := range 12 { // more than the list of what needs attention names
		s.Steering = append(s.Steering, steering.Order{Kind: steering.Mute, Target: "t" + strings.Repeat("x", i), Until: now.Add(time.Minute), By: "ann", Reason: "noise"})
	}
	channels, orders := sectionOf(s, "channel-section"), sectionOf(s, "steering-section")
	if diff := cmp.Diff([]string{"#alerts: 3", "#alerts: paused", "#gone rejects every message (is_archived); its events are dead-lettered"}, channels.List); diff != "" || channels.Note != "3 events waiting, 1 paused, 1 refusing" {
		t.Errorf("channels: %s (-want +got):\n%s", channels.Note, diff)
	}
	if len(orders.List) != 12 || orders.List[0] != "mute of t until "+now.Add(time.Minute).Format(time.RFC3339)+" (1m), by ann: noise" || orders.Note != "14 in force" || orders.More != "and 2 more orders" {
		t.Errorf("orders: %+v", orders)
	}
	s.Replicas = append(s.Replicas, stats.Replica{ID: "b", Seen: now, Silent: true, Heartbeat: stats.Heartbeat{Started: now}})
	replicas := sectionOf(s, "replica-section")
	at := now.Format(time.TimeOnly)
	if diff := cmp.Diff([]string{"a | not ready | 2 | #alerts, redis | " + at + " | " + at + " now | v1", "b | silent | – | – | " + at + " | " + at + " now | "}, rowsOf(replicas)); diff != "" || replicas.Note != "2 of 3 ready, 1 silent" || replicas.More != "and 2 more replicas" {
		t.Errorf("replicas: %s, %s (-want +got):\n%s", replicas.Note, replicas.More, diff)
	}
	if got := sectionOf(s, "reserve-section"); got.Note != "3 slots kept" || got.Text.Text != "Global slots are kept for: payments 3 of 5, x 0 of 1, and 1 more." {
		t.Errorf("reserves: %+v", got)
	}
	if got := sectionOf(s, "settings-section"); got.Note != "not the same in all replicas" || got.Text.Text != "The limits above are those of 2 replicas (settings abc)." || len(got.List) != 1 {
		t.Errorf("settings: %+v", got)
	}
}

// TestWithoutRedisThePageShowsTheLastStatus, and says so.
func TestWithoutRedisThePageShowsTheLastStatus(t *testing.T) {
	sent := now.Add(-time.Hour)
	unknown := Unknown{
		Time: now, Summary: Summary{Kind: "redis unreachable", Level: LevelBad, Text: "Nothing is sent.", Attention: []Attention{{"error", LevelBad, "refused"}, {"b", LevelNote, "note"}}},
		This: &This{Replica: "a", Time: now, LastSent: &sent, HeldFor: map[string]int{"slack": 1, "redis": 2}, Held: 2, InFlight: 3, Paused: []PausedChannel{{"#alerts", 12}}, Redis: Redis{State: RedisUnavailable, Text: "Redis is unavailable: nothing is sent", Reason: "EOF"}},
	}
	last := Status{Time: now.Add(-time.Minute), Held: 7, Summary: Summary{Text: "Working."}}
	got := NewPage(unknown, &last)
	if !got.Stale || !got.AsOf.Equal(last.Time) || got.Summary.Text != "Nothing is sent." || got.Facts[3].Text != "7" || len(got.Sections) == 0 {
		t.Errorf("%+v", got)
	}
	if got.Said != "redis unreachable,error" || got.Aloud != "Nothing is sent. refused" {
		t.Errorf("read out: %q as %q", got.Aloud, got.Said)
	}
	own := map[string]string{}
	for _, fact := range got.This {
		own[fact.Title] = fact.Text
	}
	want := map[string]string{
		"Replica": "a", "Host": "", "Version": "", "Running for": "0", "Ready": "no", "Events in flight": "3, 0 being posted",
		"Held events": "2 (redis 2, slack 1)", "Last sent": "1h ago", "Paused channels": "#alerts for 12s", "Redis": "Redis is unavailable: nothing is sent: EOF",
	}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if first := NewPage(unknown, nil); first.Stale || len(first.Sections) > 0 || len(first.This) == 0 {
		t.Errorf("without a last status: %+v", first)
	}
}
