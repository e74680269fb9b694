package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// What the settings name and what is full keep their gauges, idle ones give way, and there is a bound.
func TestWhichCategoriesHaveAGauge(t *testing.T) {
	var recent []string
	for i := range 150 {
		recent = append(recent, fmt.Sprintf("c%03d", i))
	}
	got := withGauge([]string{"errors", "c001"}, []string{"full", "errors"}, recent)
	if len(got) != mostCategories || !slices.Equal(got[:4], []string{"errors", "c001", "full", "c000"}) || got[99] != "c097" {
		t.Errorf("%d: %q ... %q", len(got), got[:4], got[99])
	}
	if got := withGauge(nil, nil, []string{"", "a\xff", "b"}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%q, expected only b: the others are no labels, or the global scope's", got)
	}
}

// A category that is full has no admissions, and yet keeps its gauge; an idle one loses it.
func TestAFullCategoryKeepsItsGauge(t *testing.T) {
	server := redistest.Start(t)
	limiter, err := ratelimit.New(kit.OpenRedis(t, server.URL()), "n", kit.Rules("1000/30m", "2/30m", "deploys=5/1h"), time.Hour)
	kit.Check(t, err)
	admit := func(id, category string) {
		_, err := limiter.Admit(t.Context(), []ratelimit.Request{{ID: id, Delivery: id, Category: category, Cost: 1}})
		kit.Check(t, err)
	}
	g := newGauges(nil, limiter)
	used := func() map[string]int {
		used := map[string]int{}
		for _, usage := range g.usages(t.Context()) {
			used[usage.Category] = usage.Used
		}
		return used
	}
	admit("1", "full")
	admit("2", "full")
	admit("3", "idle")
	if got := used(); len(got) != 4 || got["full"] != 2 || got["idle"] != 1 || got[""] != 3 {
		t.Errorf("%v, expected the global scope, full, idle and deploys, which the settings name", got)
	}
	for i := range mostCategories {
		admit(fmt.Sprint("busy-", i), fmt.Sprintf("busy%03d", i))
	}
	got := used()
	if _, there := got["idle"]; there || got["full"] != 2 || len(got) != 1+mostCategories {
		t.Errorf("%d gauges, full %d, idle there: %t; expected 101, 2 and false", len(got), got["full"], there)
	}
	if _, there := got["deploys"]; !there {
		t.Error("what the settings name has no gauge")
	}
}

// Publishers choose the categories, and can name one as we name the others.
func TestNobodyCountsAsTheOthers(t *testing.T) {
	m := New()
	observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: "_other"}})
	if got := scrape(t, m); !strings.Contains(got, `{category="__other",outcome="sent",reason=""} 1`) || strings.Contains(got, `category="_other"`) {
		t.Errorf("their category is mixed with ours:\n%s", got)
	}
}
