package main

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"notifier/internal/consume"
)

// mostCategories bounds the values of the category label: publishers choose the names, and each is a time series.
const mostCategories = 100

// otherCategories stands for the categories past the first ones.
const otherCategories = "_other"

// metrics is what /metrics shows of one worker, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	also     func(consume.Settled) // whoever else wants to know of settled events, or nil

	mu         sync.Mutex
	categories map[string]bool
}

// newMetrics makes the metrics; clockLag is asked at each scrape, and also, if it is not nil, is told what observe is.
func newMetrics(clockLag func() time.Duration, also func(consume.Settled)) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifier_events_total",
			Help: "Settled events. Categories past the first 100 count as _other.",
		}, []string{"outcome", "reason", "category"}),
		also:       also,
		categories: map[string]bool{},
	}
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notifier_redis_clock_lag_seconds",
		Help: "How far the clock of Redis is behind the newest admission; above 0 only after it was set back.",
	}, func() float64 { return clockLag().Seconds() })
	m.registry.MustRegister(m.events, lag)
	return m
}

// observe counts one settled event.
func (m *metrics) observe(s consume.Settled) {
	m.events.WithLabelValues(s.Outcome, s.Reason, m.label(s.Event.Category)).Inc()
	if m.also != nil {
		m.also(s)
	}
}

func (m *metrics) label(category string) string {
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
