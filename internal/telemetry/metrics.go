// Package telemetry measures one worker: Prometheus metrics, and OpenTelemetry spans of settled events.
//
// Counters and histograms are updated as the worker settles events, and as its calls of the limiter and of
// Slack return. The worker does not know this package; wrappers time its calls. The gauges are collected at
// each scrape from the worker's snapshot, which makes no request, and from one read of Redis, which is used
// for a few seconds. A value that is unknown is absent from /metrics.
//
// The package reads no setting except the OTEL_* variables of the exporter. The OpenTelemetry library reads
// the remaining OTEL_* variables.
package telemetry

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"notifier/internal/consume/result"
	"notifier/internal/outcome"
)

// maxCategories bounds the values of the category label: publishers choose the names, and each is a time
// series.
const maxCategories = 100

// Metrics holds the metrics of one worker, in a registry of its own. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	events        *prometheus.CounterVec
	skipped       *prometheus.CounterVec
	latency       prometheus.Histogram
	decisionTime  prometheus.Histogram
	decisionBatch prometheus.Histogram
	postTime      *prometheus.HistogramVec

	mu         sync.Mutex
	categories map[string]bool
}

// New makes the metrics of one worker, all zero.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifier_events_total",
			Help: fmt.Sprintf("Settled events. Categories past the first %d count as %s.", maxCategories, outcome.OtherCategories),
		}, []string{"outcome", "reason", "category"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifier_dead_letters_skipped_total",
			Help: "Dead events without a dead letter, because their category had written its share of letters.",
		}, []string{"reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_event_latency_seconds",
			Help:    "From an event's publication to Slack's answer, for events that were sent.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
		decisionTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_decision_seconds",
			Help:    "One call of admit.lua, including the round trip to Redis.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		decisionBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_decision_batch_size",
			Help:    "Events in one call of admit.lua.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		postTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "notifier_slack_post_seconds",
			Help:    "One post to Slack, by its result.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
		categories: map[string]bool{},
	}
	// Series that alerts watch exist from the start: Prometheus sees no increase in a counter that first
	// appears with the value 1.
	m.postTime.WithLabelValues(postOK)
	for _, reason := range outcome.Undecodable() {
		m.skipped.WithLabelValues(reason)
	}
	m.registry.MustRegister(m.events, m.skipped, m.latency, m.decisionTime, m.decisionBatch, m.postTime,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Observe counts settled events.
func (m *Metrics) Observe(batch []result.Sum) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sum := range batch {
		counter := m.events.WithLabelValues(sum.Kind.Outcome, sum.Kind.Reason, m.boundedLabel(sum.Kind.Category))
		counter.Add(float64(len(sum.Results)))
		for _, r := range sum.Results {
			if r.NoLetter {
				m.skipped.WithLabelValues(r.Reason).Inc()
			}
			if r.Outcome == outcome.Sent {
				m.latency.Observe(r.Latency.Seconds())
			}
		}
	}
}

// decided counts one call of admit.lua.
func (m *Metrics) decided(batch int, took time.Duration) {
	m.decisionTime.Observe(took.Seconds())
	m.decisionBatch.Observe(float64(batch))
}

// postOK is the result of a post that Slack accepted. The alerts select it.
const postOK = "ok"

// posted counts one post. The result is postOK or a class of failure.
func (m *Metrics) posted(result string, took time.Duration) {
	m.postTime.WithLabelValues(result).Observe(took.Seconds())
}

// boundedLabel returns the name of the category, or outcome.OtherCategories past the first ones. mu is held.
func (m *Metrics) boundedLabel(category string) string {
	category = labelText(category)
	if !m.categories[category] {
		if len(m.categories) >= maxCategories {
			return outcome.OtherCategories
		}
		m.categories[category] = true
	}
	return category
}

// labelText returns the category as a label, which must be UTF-8. A dead event's category need not be.
func labelText(category string) string {
	return strings.ToValidUTF8(outcome.CategoryName(category), "\uFFFD")
}

// Handler serves the metrics to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
