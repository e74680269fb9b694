package telemetry

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/consume"
	"notifier/internal/ratelimit"
)

// gaugeTimeout bounds how long a scrape waits for Redis and NATS. What they do not answer in time is left out of it.
const gaugeTimeout = 2 * time.Second

// gauges asks the worker, Redis and NATS at each scrape what is the case now.
type gauges struct {
	worker  *consume.Worker
	limiter *ratelimit.Limiter
	pause   *ratelimit.Pause

	limitUsed, limitMax, held, cooldown, pending, refused, lost, unpublished, clockLag *prometheus.Desc
}

// AddGauges adds what is asked of the worker, Redis and NATS at each scrape. It is called once.
func (m *Metrics) AddGauges(worker *consume.Worker, limiter *ratelimit.Limiter, pause *ratelimit.Pause) {
	m.registry.MustRegister(newGauges(worker, limiter, pause))
}

func newGauges(worker *consume.Worker, limiter *ratelimit.Limiter, pause *ratelimit.Pause) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("notifier_"+name, help, labels, nil)
	}
	return &gauges{
		worker: worker, limiter: limiter, pause: pause,
		limitUsed:   desc("limit_used", "Slots used in the window, in the fullest tier. At most 100 categories.", "scope", "category"),
		limitMax:    desc("limit_max", "Slots of this tier.", "scope", "category"),
		held:        desc("held_events", "Events held while the worker waits for this; 0 when it does not.", "why"),
		cooldown:    desc("slack_cooldown_seconds", "Time left of the pause that Slack asked for."),
		pending:     desc("consumer_pending", "Events in the stream that no replica has received yet."),
		refused:     desc("refused_channels", "Channels that reject every message, as seen by this replica."),
		lost:        desc("lost_events_total", "Events that were received and lost, which is possible only with NATS_MODE=core."),
		unpublished: desc("dropped_unpublished_total", "Dropped events that could not be republished to DROPPED_SUBJECT."),
		clockLag:    desc("redis_clock_lag_seconds", "How far the clock of Redis is behind the newest admission; above 0 only after it was set back."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{g.limitUsed, g.limitMax, g.held, g.cooldown, g.pending, g.refused, g.lost, g.unpublished, g.clockLag} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
	defer cancel()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(g.clockLag, g.limiter.ClockLag().Seconds())
	gauge(g.refused, float64(len(g.worker.RefusedChannels())))
	out <- prometheus.MustNewConstMetric(g.lost, prometheus.CounterValue, float64(g.worker.Lost()))
	out <- prometheus.MustNewConstMetric(g.unpublished, prometheus.CounterValue, float64(g.worker.Unpublished()))

	waits := g.worker.Waits()
	for _, word := range consume.WaitWords() {
		held := 0
		if slices.ContainsFunc(waits, func(w consume.Wait) bool { return w.For == word }) {
			held = g.worker.Holds()
		}
		gauge(g.held, float64(held), word)
	}
	if left, err := g.pause.Remaining(ctx); err == nil {
		gauge(g.cooldown, left.Seconds())
	}
	for _, usage := range g.usages(ctx) {
		scope := "category"
		if usage.Category == "" {
			scope = "global"
		}
		gauge(g.limitUsed, float64(usage.Used), scope, usage.Category)
		gauge(g.limitMax, float64(usage.Tier.Count), scope, usage.Category)
	}
	if n, known := g.backlog(ctx); known {
		gauge(g.pending, float64(n))
	}
}

// backlog asks NATS for as long as ctx allows: while nats.go tries a server that does not answer, it does not return,
// whatever the context.
func (g *gauges) backlog(ctx context.Context) (n uint64, known bool) {
	answer := make(chan uint64, 1)
	go func() {
		if n, err := g.worker.Pending(ctx); err == nil {
			answer <- n
		}
	}()
	select {
	case n = <-answer:
		return n, true
	case <-ctx.Done():
		return 0, false
	}
}

// usages is the fullest tier of the global scope and of each of the first categories.
func (g *gauges) usages(ctx context.Context) []ratelimit.Usage {
	categories, err := g.limiter.Categories(ctx)
	if err != nil {
		return nil
	}
	// No worker has written a name that is not a valid label or that is the global scope's.
	categories = slices.DeleteFunc(categories, func(name string) bool { return name == "" || !utf8.ValidString(name) })
	all, err := g.limiter.Peek(ctx, categories[:min(len(categories), mostCategories)]...)
	if err != nil {
		return nil
	}
	var fullest []ratelimit.Usage
	for _, usage := range all { // the tiers of a scope follow one another
		last := len(fullest) - 1
		switch {
		case last < 0 || fullest[last].Category != usage.Category:
			fullest = append(fullest, usage)
		case usage.Used*fullest[last].Tier.Count > fullest[last].Used*usage.Tier.Count:
			fullest[last] = usage
		}
	}
	return fullest
}
