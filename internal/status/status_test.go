package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/test/kit"
)

// known is what the parts of a Source say.
type known struct {
	categories []string
	entries    int // of the index, where there are more than categories
	usages     []ratelimit.Usage
	slots      []ratelimit.Slot
	pauses     []ratelimit.Pause
	turn       time.Duration
	reserves   []ratelimit.Reserve
	kept       []int // of the slots of each global tier; nil: as reserves say of theirs
	hour       stats.Hour
	replicas   []stats.Replica
	refused    error // with which Redis refuses writes
	err        error
	asked      []string // categories that Peek was asked for
}

func (k *known) Recent(context.Context, int) ([]string, int, error) {
	return k.categories, max(len(k.categories), k.entries), k.err
}
func (k *known) Peek(_ context.Context, categories ...string) ([]ratelimit.Usage, error) {
	k.asked = categories
	return k.usages, k.err
}
func (k *known) Slots(context.Context, int, ...string) ([]ratelimit.Slot, error) {
	return k.slots, k.err
}
func (k *known) Rooms(_ context.Context, categories ...string) ([]ratelimit.Room, error) {
	rooms := make([]ratelimit.Room, len(categories))
	for i, category := range categories {
		for _, usage := range k.usages {
			if usage.Category+usage.Group != "" {
				continue
			}
			kept := 0
			for _, reserve := range k.reserves {
				if reserve.Category != category && reserve.Tier == usage.Tier {
					kept += reserve.Kept
				}
			}
			if k.kept != nil {
				kept = k.kept[len(rooms[i].Kept)]
			}
			if usage.FreeIn == 0 && usage.Used+kept >= usage.Tier.Count {
				usage.FreeIn = time.Minute
			}
			rooms[i].Usages, rooms[i].Kept = append(rooms[i].Usages, usage), append(rooms[i].Kept, kept)
		}
	}
	return rooms, k.err
}
func (k *known) Reserves(context.Context) ([]ratelimit.Reserve, error) { return k.reserves, k.err }

func (k *known) Refuses(context.Context) error                     { return k.refused }
func (k *known) Pauses(context.Context) ([]ratelimit.Pause, error) { return k.pauses, k.err }
func (k *known) Turn(context.Context, string, ratelimit.Tier) (time.Duration, error) {
	return k.turn, k.err
}
func (k *known) Hour(context.Context) (stats.Hour, error) { return k.hour, k.err }

// Replicas have just started and reported, where nothing else is known of them.
func (k *known) Replicas(context.Context) ([]stats.Replica, error) {
	for i, replica := range k.replicas {
		if replica.Seen.IsZero() {
			k.replicas[i].Seen = k.hour.Now
		}
		if replica.Started.IsZero() {
			k.replicas[i].Started = k.hour.Now
		}
	}
	return slices.Clone(k.replicas), k.err
}
func (k *known) source() Source { return Source{Limiter: k, Stats: k} }
func tier(count int, window time.Duration) ratelimit.Tier {
	return ratelimit.Tier{Count: count, Window: window}
}
func count(category, outcome, reason string, n int64) stats.Count {
	return stats.Count{Category: category, Outcome: outcome, Reason: reason, N: n}
}

var now = time.Date(2026, 11, 20, 14, 2, 30, 0, time.UTC)

func TestAStatusPutsLimitsAndCountsTogether(t *testing.T) {
	half := 30 * time.Minute
	k := &known{
		categories: []string{"deploys", "errors"},
		usages: []ratelimit.Usage{
			{Tier: tier(100, half), Used: 12},
			{Category: "deploys", Tier: tier(10, half), Used: 2},
			{Category: "errors", Tier: tier(10, half), Used: 10, FreeIn: 90 * time.Second},
			{Category: "errors", Tier: tier(2, time.Minute), Used: 2, FreeIn: 10 * time.Second},
			{Category: "quiet", Tier: tier(10, half)},
		},
		pauses: []ratelimit.Pause{{Channel: "#alerts", Left: 1500 * time.Millisecond}},
		hour: stats.Hour{
			Now: now,
			Minutes: []stats.Minute{
				{Start: now.Add(-2 * time.Minute), Counts: []stats.Count{count("errors", "dropped", "category", 5), count("errors", "dropped", "reply", 50), count("errors", "sent", "", 8), count("quiet", "dead", "malformed", 1)}},
				{Start: now.Add(-time.Minute), Counts: []stats.Count{count("deploys", "sent", "", 2), count("errors", "dropped", "global", 1), count("errors", "sent", "", 2)}},
			},
			LastSent: map[string]time.Time{"errors": now.Add(-20 * time.Second), "deploys": now.Add(-50 * time.Second)},
		},
		replicas: []stats.Replica{
			{ID: "a", Heartbeat: stats.Heartbeat{Held: 7, Waits: []stats.Wait{{For: "slack"}}}},
			{ID: "b", Heartbeat: stats.Heartbeat{Held: 3}}, // at work, not waiting
		},
	}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	if diff := cmp.Diff([]string{"errors", "deploys", "quiet"}, k.asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	at := func(d time.Duration) *time.Time { moment := now.Add(d); return &moment }
	want := Status{
		Time: now,
		Global: Scope{
			Tiers: []Tier{{Limit: "100/30m", Used: 12, Max: 100}}, Forecast: &Forecast{Sends: true}, Sent: 12, Dropped: 6, LastSent: at(-20 * time.Second),
			Minutes: []Minute{{now.Add(-2 * time.Minute), 8, 5}, {now.Add(-time.Minute), 4, 1}},
		},
		Categories: []Scope{
			{
				Category: "errors",
				Tiers:    []Tier{{Limit: "10/30m", Used: 10, Max: 10, FreeS: 90}, {Limit: "2/1m", Used: 2, Max: 2, FreeS: 10}},
				NextFree: at(90 * time.Second), Forecast: &Forecast{Reason: "category", Limit: "10/30m", At: at(90 * time.Second)}, Sent: 10, Dropped: 6, LastSent: at(-20 * time.Second),
				Minutes: []Minute{{now.Add(-2 * time.Minute), 8, 5}, {now.Add(-time.Minute), 2, 1}},
			},
			{
				Category: "deploys", Tiers: []Tier{{Limit: "10/30m", Used: 2, Max: 10}}, Forecast: &Forecast{Sends: true}, Sent: 2, LastSent: at(-50 * time.Second),
				Minutes: []Minute{{now.Add(-time.Minute), 2, 0}},
			},
			{Category: "quiet", Tiers: []Tier{{Limit: "10/30m", Max: 10}}, Forecast: &Forecast{Sends: true}, Minutes: []Minute{}},
		},
		Groups: []Scope{}, Reserves: []ratelimit.Reserve{},
		MoreSlots: 12, Unread: 12, InBuckets: true, Holders: []Holder{}, // whose they are is not known
		Sources:   map[string][]stats.SourceCount{},
		Outcomes:  []Outcome{{"sent", "", 12}, {"dropped", "category", 5}, {"dropped", "global", 1}, {"dropped", "reply", 50}, {"dead", "malformed", 1}},
		CooldownS: 1.5, Pauses: []Pause{{Channel: "#alerts", LeftS: 1.5, Text: "#alerts: Slack asked to wait 2 s"}}, Held: 7, Unposted: []Unposted{}, Replicas: k.replicas,
		Steering: []steering.Order{}, Streams: []Stream{},
		Settings: Settings{
			OwnText: "The replicas run a release that does not show its limits: the limits are those that are set here.",
			Differ:  []Difference{}, Warnings: []string{},
		},
	}
	want.Summary = got.Summary // see TestSummary
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestTheTierThatRefusesIsTheOneSaid: it need not be the longest one, in which reserves are reported.
func TestTheTierThatRefusesIsTheOneSaid(t *testing.T) {
	long, short := tier(10, 30*time.Minute), tier(8, 10*time.Minute)
	k := &known{
		hour: stats.Hour{Now: now}, replicas: []stats.Replica{{ID: "a", Heartbeat: stats.Heartbeat{Ready: true}}},
		usages:   []ratelimit.Usage{{Tier: long, Used: 6}, {Tier: short, Used: 6}},
		reserves: []ratelimit.Reserve{{Category: "vip", Tier: long, Slots: 3, Kept: 3}},
		kept:     []int{3, 3},
	}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	const want = "Full for most: 2 global slots are left, kept for vip. All others are dropped."
	if got.Summary.Text != want || got.Global.Tiers[0].Kept != 3 || got.Global.Tiers[1].Kept != 3 {
		t.Errorf("%q with %+v, expected %q", got.Summary.Text, got.Global.Tiers, want)
	}
}

func TestAStatusHasABoundedNumberOfCategories(t *testing.T) {
	k := &known{usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}, hour: stats.Hour{Now: now}}
	minute := stats.Minute{Start: now, Counts: []stats.Count{count(stats.OtherCategory, "dropped", "global", 3)}}
	for i := range 130 {
		name := fmt.Sprintf("c%03d", i)
		k.categories = append(k.categories, name)
		minute.Counts = append(minute.Counts, count(name, "sent", "", 1))
		k.usages = append(k.usages, ratelimit.Usage{Category: name, Tier: tier(10, time.Minute), Used: 1})
	}
	k.hour.Minutes = []stats.Minute{minute}
	got, err := k.source().Read(t.Context())
	if err != nil || len(k.asked) != 130 || got.More != 30 || len(got.Categories) != 101 || got.Global.Sent != 130 {
		t.Errorf("asked for %d categories, shown %d (with the others), %d more, %d sent in total, %v; expected 130, 101, 30 and 130",
			len(k.asked), len(got.Categories), got.More, got.Global.Sent, err)
	}
}

func TestAStatusThatCannotBeReadIsAnError(t *testing.T) {
	k := &known{err: errors.New("redis is unavailable")}
	if _, err := k.source().Read(t.Context()); err == nil {
		t.Error("no error, expected that of Redis")
	}
}
