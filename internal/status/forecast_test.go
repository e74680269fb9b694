package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
	"notifier/test/kit"
)

// full is a usage without room for that long.
func full(group, category string, wait time.Duration) ratelimit.Usage {
	return ratelimit.Usage{Group: group, Category: category, Tier: tier(5, time.Hour), Used: 5, FreeIn: wait}
}

// TestOneAnswerForEveryScope: what the table shows for a category is what the JSON and the status of the
// category say of it, whichever of its limits refuses.
func TestOneAnswerForEveryScope(t *testing.T) {
	room := func(group, category string) ratelimit.Usage { return used(group, category, 1, tier(5, time.Hour)) }
	reserve := []ratelimit.Reserve{{Category: "payments", Tier: tier(5, time.Hour), Slots: 4, Kept: 4}}
	for _, test := range []struct {
		name, category string
		usages         []ratelimit.Usage // global, group, category
		reserves       []ratelimit.Reserve
		reason, cell   string
		wait           time.Duration
	}{
		{"room everywhere", "a.x", []ratelimit.Usage{room("", ""), room("a", ""), room("", "a.x")}, nil, "", "now", 0},
		{"the global limit is full", "a.x", []ratelimit.Usage{full("", "", time.Minute), room("a", ""), room("", "a.x")}, nil, "global", "global limit, in 1m", time.Minute},
		{"the group's is", "a.x", []ratelimit.Usage{room("", ""), full("a", "", time.Minute), room("", "a.x")}, nil, "group", "group limit, in 1m", time.Minute},
		{"its own is", "a.x", []ratelimit.Usage{room("", ""), room("a", ""), full("", "a.x", time.Minute)}, nil, "category", "in 1m", time.Minute},
		{"two are", "a.x", []ratelimit.Usage{full("", "", 2*time.Minute), room("a", ""), full("", "a.x", time.Minute)}, nil, "global", "global limit, in 2m", 2 * time.Minute},
		{"two for as long", "a.x", []ratelimit.Usage{full("", "", time.Minute), full("a", "", time.Minute), full("", "a.x", time.Minute)}, nil, "category", "in 1m", time.Minute},
		{"the rest is kept", "a.x", []ratelimit.Usage{room("", ""), room("", "a.x")}, reserve, "global", "kept, in 1m", time.Minute},
		{"the rest is kept, and used up", "a.x", []ratelimit.Usage{full("", "", time.Minute), room("", "a.x")}, reserve, "global", "global limit, in 1m", time.Minute},
		{"for itself", "payments", []ratelimit.Usage{room("", ""), room("", "payments")}, reserve, "", "now", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := &known{categories: []string{test.category}, usages: test.usages, reserves: test.reserves, hour: stats.Hour{Now: now}}
			status, err := k.source().Read(t.Context())
			kit.Check(t, err)
			explained, err := k.source().Explain(t.Context(), test.category)
			kit.Check(t, err)
			got := status.Categories[0]
			if diff := cmp.Diff(*got.Forecast, explained.Forecast); diff != "" {
				t.Errorf("status and explain differ (-status +explain):\n%s", diff)
			}
			wait := time.Duration(0)
			if got.Forecast.At != nil {
				wait = got.Forecast.At.Sub(now)
			}
			cell := test.cell
			if test.wait > 0 {
				cell += fmt.Sprintf(" (%s)", now.Add(test.wait).Local().Format(time.TimeOnly))
			}
			if got.Forecast.Reason != test.reason || got.Forecast.Sends != (test.reason == "") || wait != test.wait || status.freeText(got, 0) != cell {
				t.Errorf("%+v in %s, shown as %q; expected %q in %s, shown as %q", got.Forecast, wait, status.freeText(got, 0), test.reason, test.wait, cell)
			}
		})
	}
}

// A lower bound of one tier is one of all: it may have room after the others.
func TestALowerBoundIsSaid(t *testing.T) {
	bound, exact := full("", "", time.Minute), full("", "a", 2*time.Minute)
	bound.AtLeast = true
	k := &known{categories: []string{"a"}, usages: []ratelimit.Usage{bound, exact}, hour: stats.Hour{Now: now}}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	clock := now.Add(2 * time.Minute).Local().Format(time.TimeOnly)
	if f := got.Categories[0].Forecast; !f.AtLeast || !strings.HasSuffix(f.Text(now), "There is room in at least 2m ("+clock+").") {
		t.Errorf("%+v: %s", f, f.Text(now))
	}
	if cell, want := got.freeText(got.Global, 0), "in at least 1m ("; !strings.HasPrefix(cell, want) {
		t.Errorf("%q, expected %q", cell, want)
	}
	if cell, want := got.freeText(got.Categories[0], 0), "in 2m ("; !strings.HasPrefix(cell, want) {
		t.Errorf("%q, expected %q: its own limit's time is exact", cell, want)
	}
	if _, err := k.source().NextFree(t.Context()); !errors.Is(err, errNotKnown) {
		t.Errorf("%v, expected that it is not known when there is room", err)
	}
}

// A mute goes before every limit.
func TestMutedIsNotSent(t *testing.T) {
	until := now.Add(time.Hour)
	mutes := running{orders: []steering.Order{
		{Kind: steering.Mute, Target: "b"}, {Kind: steering.Mute, Target: "a.>", Until: now.Add(time.Minute)},
		{Kind: steering.Mute, Target: "*.x", Until: until}, {Kind: steering.Mute, Target: "nonsense >"}, {Kind: steering.Limit, Target: "c"},
	}}
	if mute := mutes.muteOf("a.x"); mute == nil || !mute.Until.Equal(until) || mutes.muteOf("c") != nil {
		t.Errorf("%+v", mute)
	}
	got := running{}.forecast(&steering.Order{Kind: steering.Mute, Target: "a", Until: until}, level{reason: "global", usages: []ratelimit.Usage{full("", "", time.Minute)}})
	if diff := cmp.Diff(Forecast{Reason: "muted", At: &until}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := got.Text(now); text != "An event would be dropped now (muted): it is muted. The mute ends in 1h ("+until.Local().Format(time.TimeOnly)+")." {
		t.Errorf("%q", text)
	}
}

// TestTheTextOfAForecast names what refuses, and when there is room.
func TestTheTextOfAForecast(t *testing.T) {
	at := now.Add(90 * time.Second)
	clock := "1m30s (" + at.Local().Format(time.TimeOnly) + ")."
	for _, test := range []struct {
		forecast Forecast
		want     string
	}{
		{Forecast{Sends: true}, "An event would be sent now."},
		{Forecast{Reason: "category", Limit: "5/1h", At: &at}, "An event would be dropped now (category): the limit 5/1h of the category is full. There is room in " + clock},
		{Forecast{Reason: "group", Limit: "5/1h", At: &at}, "An event would be dropped now (group): the limit 5/1h of its group is full. There is room in " + clock},
		{Forecast{Reason: "global", Limit: "5/1h", At: &at}, "An event would be dropped now (global): the global limit 5/1h is full. There is room in " + clock},
		{Forecast{Reason: "global", Limit: "5/1h", At: &at, Kept: 4, Left: 3, AtLeast: true}, "An event would be dropped now (global): of the global limit 5/1h only slots are left that are kept for others (3). There is room in at least " + clock},
		{Forecast{Reason: "global", Limit: "5/1h", At: &at, Kept: 4, AtLeast: true}, "An event would be dropped now (global): the global limit 5/1h is full. There is room in at least " + clock},
	} {
		if got := test.forecast.Text(now); got != test.want {
			t.Errorf("%q, expected %q", got, test.want)
		}
	}
	if text := (Explanation{Time: now, Category: "a", Limits: []AppliedLimit{{Level: "category", Tiers: []Tier{{Limit: "\x1b[2J"}}}}, Channel: "\u202e"}).Lines(term.Screen{}); text != term.Lines(text) {
		t.Errorf("%q, expected nothing that a terminal obeys", text)
	}
}
