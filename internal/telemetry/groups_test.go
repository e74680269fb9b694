package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

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

// A group, a category of the same name and the global scope have series of their own, and of each the fullest
// tier is shown.
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

// A full category and a full group have no admissions, and yet keep their gauges, as does what the settings
// name; an idle one gives way.
func TestWhatIsFullKeepsItsGauge(t *testing.T) {
	rules := kit.Rules("1000/30m", "2/30m", "deploys=5/1h")
	rules.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("2/30m", "2/30m", "").Global}
	rules.Reserve = map[string]int{"payments": 5}
	limiter, err := ratelimit.New(kit.OpenRedis(t, redistest.Start(t).URL()), "n", rules, time.Hour)
	kit.Check(t, err)
	admit := func(id, category string, want ratelimit.Verdict) {
		t.Helper()
		decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{{ID: id, Delivery: id, Category: category, Cost: 1}})
		kit.Check(t, err)
		if decisions[0].Verdict != want {
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
	admit("5", "full", ratelimit.Admitted)
	admit("6", "full", ratelimit.Admitted)
	admit("7", "idle", ratelimit.Admitted)
	_ = now() // which sees what is full
	for i := range mostCategories {
		admit(fmt.Sprint("busy-", i), fmt.Sprintf("busy%03d", i), ratelimit.Admitted)
	}
	got := now()
	for name, want := range map[string]float64{"used group team-a": 2, "max group team-a": 2, "reserved payments": 5, "kept payments": 4, "used category payments": 1, "used category full": 2, "used category deploys": 0} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, there: %t, expected %v", name, value, there, want)
		}
	}
	if _, there := got["used category idle"]; there || len(got) != 2*(1+1+mostCategories)+2 {
		t.Errorf("%d series, idle there: %t; expected 206 and false", len(got), there)
	}
}
