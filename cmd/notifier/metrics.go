package main

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"notifier/internal/consume"
	"notifier/internal/outcome"
)

// mostCategories bounds the values of the category label: publishers choose the names, and each is a time series.
const mostCategories = 100

// otherCategories stands for the categories past the first ones.
const otherCategories = "_other"

// metrics is what /metrics shows of one worker, in a registry of its own. What happens is counted here; what is the case
// is asked at each scrape, see gauges.
type metrics struct {
	registry *prometheus.Registry

	events        *prometheus.CounterVec
	latency       prometheus.Histogram
	decisionTime  prometheus.Histogram
	decisionBatch prometheus.Histogram
	postTime      *prometheus.HistogramVec

	mu         sync.Mutex
	categories map[string]bool
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifier_events_total",
			Help: "Settled events. Categories past the first 100 count as _other.",
		}, []string{"outcome", "reason", "category"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_event_latency_seconds",
			Help:    "From an event's publication to Slack's answer, for events that were sent.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
		decisionTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_decision_seconds",
			Help:    "One call of the script, with the way to Redis and back.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		decisionBatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "notifier_decision_batch_size",
			Help:    "Events in one call of the script.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		postTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "notifier_slack_post_seconds",
			Help:    "One post to Slack, by what came of it.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"result"}),
		categories: map[string]bool{},
	}
	m.registry.MustRegister(m.events, m.latency, m.decisionTime, m.decisionBatch, m.postTime,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// settled counts one settled event.
func (m *metrics) settled(s consume.Settled) {
	m.events.WithLabelValues(s.Outcome, s.Reason, m.label(s.Event.Category)).Inc()
	if s.Outcome == outcome.Sent {
		m.latency.Observe(s.Latency.Seconds())
	}
}

// decided counts one call of the script.
func (m *metrics) decided(batch int, took time.Duration) {
	m.decisionTime.Observe(took.Seconds())
	m.decisionBatch.Observe(float64(batch))
}

// posted counts one post; the result is "ok" or a class of failure in a word.
func (m *metrics) posted(result string, took time.Duration) {
	m.postTime.WithLabelValues(result).Observe(took.Seconds())
}

// label bounds the categories.
func (m *metrics) label(category string) string {
	category = strings.ToValidUTF8(category, "\uFFFD") // which a dead event's need not be, and a label has to
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.categories[category] {
		if len(m.categories) >= mostCategories {
			return otherCategories
		}
		m.categories[category] = true
	}
	return category
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
