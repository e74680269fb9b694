package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
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

// Publishers choose the categories, and can name one as we name the others.
func TestNobodyCountsAsTheOthers(t *testing.T) {
	m := New()
	observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: "_other"}})
	if got := scrape(t, m); !strings.Contains(got, `{category="__other",outcome="sent",reason=""} 1`) || strings.Contains(got, `category="_other"`) {
		t.Errorf("their category is mixed with ours:\n%s", got)
	}
}
