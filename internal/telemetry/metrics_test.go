package telemetry

import (
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/test/kit"
)

// scrape returns the text that Prometheus reads.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}

// observe counts settled events that are a batch.
func observe(m *Metrics, batch ...*result.Result) { m.Observe(result.SumUp(batch)) }

func TestMetricsCountWhatBecameOfEvents(t *testing.T) {
	m := New()
	observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: "errors"}})
	for range 2 {
		observe(m, &result.Result{Outcome: outcome.Dropped, Reason: outcome.Global, Event: event.Event{Category: "errors"}})
	}
	observe(m, &result.Result{Outcome: outcome.Dead, Reason: outcome.Malformed, NoLetter: true})
	observe(m, &result.Result{Outcome: outcome.Dead, Reason: "malformed", Event: event.Event{Category: "a\xff"}})
	observe(m, &result.Result{Outcome: outcome.Dead, Reason: outcome.Malformed})
	got := scrape(t, m)
	for _, want := range []string{
		`notifier_dead_letters_skipped_total{reason="malformed"} 1`, `notifier_dead_letters_skipped_total{reason="too_large"} 0`,
		`notifier_events_total{category="errors",outcome="sent",reason=""} 1`, `notifier_slack_post_seconds_count{result="ok"} 0`,
		`notifier_events_total{category="errors",outcome="dropped",reason="global"} 2`,
		`notifier_events_total{category="a�",outcome="dead",reason="malformed"} 1`, // labels have to be UTF-8
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %s in:\n%s", want, got)
		}
	}
}

// TestListOfMetrics compares observability/metrics.txt, which the alerts and the dashboard are checked against,
// with the names and labels in the registry. cmd/notifier compares the types with a worker's /metrics.
func TestListOfMetrics(t *testing.T) {
	t.Parallel()
	m := New()
	m.Register(Sources{})
	descs := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(descs)
	close(descs)
	var registered []string
	parts := regexp.MustCompile(`fqName: "(notifier_\w+)".* variableLabels: \{([\w,]*)\}`)
	for desc := range descs {
		if found := parts.FindStringSubmatch(desc.String()); found != nil {
			registered = append(registered, strings.TrimSpace(found[1]+" "+strings.ReplaceAll(found[2], ",", " ")))
		}
	}
	text, err := os.ReadFile("../../observability/metrics.txt")
	kit.Check(t, err)
	var listed []string
	for _, found := range regexp.MustCompile(`(?m)^(notifier_\w+) +\w+(.*)$`).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, strings.Join(strings.Fields(found[1]+found[2]), " "))
	}
	slices.Sort(registered)
	slices.Sort(listed)
	if diff := cmp.Diff(registered, listed); diff != "" {
		t.Errorf("observability/metrics.txt (+) does not list the metrics in the registry (-):\n%s", diff)
	}
}

// Publishers choose the categories, and each would be a time series.
func TestMetricsHaveABoundedNumberOfCategories(t *testing.T) {
	m := New()
	for i := range maxCategories + 50 {
		observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: fmt.Sprintf("category-%d", i)}})
	}
	observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: "category-0"}})
	got := scrape(t, m)
	if n := strings.Count(got, "\nnotifier_events_total{"); n != maxCategories+1 {
		t.Errorf("%d time series, expected %d", n, maxCategories+1)
	}
	for _, want := range []string{`{category="_other",outcome="sent",reason=""} 50`, `{category="category-0",outcome="sent",reason=""} 2`} {
		if !strings.Contains(got, want) {
			t.Errorf("no series %s", want)
		}
	}
}

// TestNoPublisherCountsAsTheOthers publishes to a category of the reserved name.
func TestNoPublisherCountsAsTheOthers(t *testing.T) {
	m := New()
	observe(m, &result.Result{Outcome: outcome.Sent, Event: event.Event{Category: "_other"}})
	got := scrape(t, m)
	if !strings.Contains(got, `{category="__other",outcome="sent",reason=""} 1`) || strings.Contains(got, `category="_other"`) {
		t.Errorf("the publisher's category is mixed with the reserved one:\n%s", got)
	}
}
