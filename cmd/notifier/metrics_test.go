package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/event"
)

// scrape is what Prometheus would read.
func scrape(t *testing.T, m *metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}

func TestMetricsCountWhatBecameOfEvents(t *testing.T) {
	told := 0
	m := newMetrics(func() time.Duration { return 1500 * time.Millisecond }, func(consume.Settled) { told++ })
	m.observe(consume.Settled{Outcome: consume.OutcomeSent, Event: event.Event{Category: "errors"}})
	for range 2 {
		m.observe(consume.Settled{Outcome: consume.OutcomeDropped, Reason: consume.ReasonGlobal, Event: event.Event{Category: "errors"}})
	}
	got := scrape(t, m)
	for _, want := range []string{
		`notifier_events_total{category="errors",outcome="sent",reason=""} 1`,
		`notifier_events_total{category="errors",outcome="dropped",reason="global"} 2`,
		`notifier_redis_clock_lag_seconds 1.5`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in:\n%s", want, got)
		}
	}
	if told != 3 {
		t.Errorf("%d events are told on, expected 3", told)
	}
}

// Publishers choose the categories, and each would be a time series.
func TestMetricsHaveABoundedNumberOfCategories(t *testing.T) {
	m := newMetrics(func() time.Duration { return 0 }, nil)
	for i := range mostCategories + 50 {
		m.observe(consume.Settled{Outcome: consume.OutcomeSent, Event: event.Event{Category: fmt.Sprintf("category-%d", i)}})
	}
	m.observe(consume.Settled{Outcome: consume.OutcomeSent, Event: event.Event{Category: "category-0"}})
	got := scrape(t, m)
	if n := strings.Count(got, "\nnotifier_events_total{"); n != mostCategories+1 {
		t.Errorf("%d time series, expected %d", n, mostCategories+1)
	}
	for _, want := range []string{`{category="_other",outcome="sent",reason=""} 50`, `{category="category-0",outcome="sent",reason=""} 2`} {
		if !strings.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}
