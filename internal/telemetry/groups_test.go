package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// collected are the gauges of limits, by name and labels.
func collected(t *testing.T, now outside) map[string]float64 {
	t.Helper()
	g := newGauges(nil, nil)
	names := map[*prometheus.Desc]string{g.limitUsed: "used", g.limitMax: "max", g.reserved: "reserved", g.kept: "kept"}
	got := map[string]float64{}
	g.collectLimits(func(desc *prometheus.Desc, value float64, labels ...string) {
		if _, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, labels...); err != nil {
			t.Errorf("%q: %v", labels, err)
		}
		key := names[desc] + " " + strings.Join(labels, " ")
		if _, twice := got[key]; twice {
			t.Errorf("%q is there twice", key)
		}
		got[key] = value
	}, now)
	return got
}

func usage(group, category string, used, count int) ratelimit.Usage {
	return ratelimit.Usage{Group: group, Category: category, Used: used, Tier: ratelimit.Tier{Count: count, Window: time.Hour}}
}

// A group, a category of the same name and the global scope have series of their own, and of each the fullest tier is shown.
func TestGaugesOfGroupsAndReserves(t *testing.T) {
	usages := fullestTiers([]ratelimit.Usage{
		usage("", "", 5, 100), usage("", "", 2, 3),
		usage("errors", "", 1, 50), usage("errors", "", 4, 60), usage("_other", "", 7, 70),
		usage("", "errors", 6, 10), usage("", "_other.x", 1, 10), usage("", "_other", 2, 10),
	})
	got := collected(t, outside{usages: usages, reserves: []ratelimit.Reserve{
		{Category: "_other", Slots: 2, Kept: 2}, {Category: "payments", Slots: 5, Used: 3, Kept: 2}, {Category: "a\xff", Slots: 1},
	}})
	want := map[string]float64{
		"used global ": 2, "max global ": 3,
		"used group errors": 4, "max group errors": 60, "used group __other": 7, "max group __other": 70,
		"used category errors": 6, "max category errors": 10, "used category _other.x": 1, "max category _other.x": 10,
		"used category __other": 2, "max category __other": 10,
		"reserved __other": 2, "kept __other": 2, "reserved payments": 5, "kept payments": 2, "reserved a\ufffd": 1, "kept a\ufffd": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Nothing of a full group is admitted for a while, and yet it keeps its gauge: by one of its categories.
func TestAFullGroupKeepsItsGauge(t *testing.T) {
	asked := []string{"idle.a", "team-a.b", "team-a.c", "full.d", "team-b"}
	full := fullOf([]ratelimit.Usage{
		usage("", "", 100, 100), usage("idle", "", 1, 10), usage("team-a", "", 10, 10), usage("full", "", 1, 10), usage("team-b", "", 12, 10),
		usage("", "idle.a", 1, 10), usage("", "team-a.b", 1, 10), usage("", "team-a.c", 1, 10), usage("", "full.d", 10, 10), usage("", "team-b", 1, 10),
	}, asked)
	if want := []string{"team-a.b", "full.d", "team-b"}; !slices.Equal(full, want) {
		t.Errorf("%q, expected %q", full, want)
	}
}

// The same from Redis, with what is kept.
func TestGroupsAndReservesFromRedis(t *testing.T) {
	rules := kit.Rules("1000/30m", "10/30m", "")
	rules.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("2/30m", "2/30m", "").Global}
	rules.Reserve = map[string]int{"payments": 5}
	limiter, err := ratelimit.New(kit.OpenRedis(t, redistest.Start(t).URL()), "n", rules, time.Hour)
	kit.Check(t, err)
	admit := func(id, category string, want ratelimit.Outcome) {
		t.Helper()
		decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{{ID: id, Delivery: id, Category: category, Cost: 1}})
		kit.Check(t, err)
		if decisions[0].Outcome != want {
			t.Errorf("%s: %+v, expected %d", id, decisions[0], want)
		}
	}
	g := newGauges(nil, limiter)
	now := func() map[string]float64 {
		reserves, err := limiter.Reserves(t.Context())
		kit.Check(t, err)
		return collected(t, outside{usages: g.usages(t.Context()), reserves: reserves})
	}
	admit("1", "team-a.x", ratelimit.Admitted)
	admit("2", "team-a.y", ratelimit.Admitted)
	admit("3", "team-a.z", ratelimit.Group)
	admit("4", "payments", ratelimit.Admitted)
	_ = now() // which sees that the group is full
	for i := range mostCategories {
		admit(fmt.Sprint("busy-", i), fmt.Sprintf("busy%03d", i), ratelimit.Admitted)
	}
	got := now()
	for name, want := range map[string]float64{"used group team-a": 2, "max group team-a": 2, "reserved payments": 5, "kept payments": 4, "used category payments": 1} {
		if got[name] != want {
			t.Errorf("%s is %v, expected %v", name, got[name], want)
		}
	}
	if _, there := got["used category team-a.x"]; there || len(got) != 2*(1+1+mostCategories)+2 {
		t.Errorf("%d series, team-a.x there: %t; expected 206 and false", len(got), there)
	}
}

// Publishers choose the groups, and the characters in them.
func TestTheGaugesOfManyGroupsAreBounded(t *testing.T) {
	var recent, full []string
	for i := range 10_000 {
		recent = append(recent, fmt.Sprintf("team-%05d.job", i))
	}
	recent = append([]string{"_other.x", "<b>.x", "a\xff.x", "\u202e.x", `"}.x`, "*.x"}, recent...)
	for range 3 { // of all groups, full ones too
		asked := withGauge([]string{"errors"}, full, recent)
		usages := []ratelimit.Usage{usage("", "", 1, 1)}
		for _, category := range asked {
			usages = append(usages, usage(ratelimit.GroupOf(category), "", 1, 1))
		}
		for _, category := range asked {
			usages = append(usages, usage("", category, 1, 1))
		}
		full = fullOf(usages, asked)
		got := collected(t, outside{usages: fullestTiers(usages)})
		if want := 2 * (1 + 2*mostCategories); len(got) != want || len(full) != mostCategories {
			t.Errorf("%d series, %d full; expected %d and %d", len(got), len(full), want, mostCategories)
		}
		for key := range got {
			if !utf8.ValidString(key) || strings.HasSuffix(key, " _other") {
				t.Errorf("%q, expected valid UTF-8 and nobody by our name", key)
			}
		}
	}
}

// A drop by a group's limit counts under its category, of which there is a bounded number.
func TestMetricsCountDropsByGroups(t *testing.T) {
	m := New()
	for i := range 10_000 {
		observe(m, &result.Result{Outcome: outcome.Dropped, Reason: outcome.Group, Event: event.Event{Category: fmt.Sprintf("team-%d.job", i)}})
	}
	got := scrape(t, m)
	if n := strings.Count(got, "\nnotifier_events_total{"); n != mostCategories+1 {
		t.Errorf("%d series, expected %d", n, mostCategories+1)
	}
	for _, want := range []string{`{category="team-0.job",outcome="dropped",reason="group"} 1`, `{category="_other",outcome="dropped",reason="group"} 9900`} {
		if !strings.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}
