package telemetry

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/consume"
	"notifier/internal/consume/post"
	"notifier/internal/ratelimit"
	"notifier/internal/status/snapshot"
)

// What Redis and NATS know is asked once for all scrapes of a few seconds.
const (
	gaugesFresh  = 5 * time.Second
	gaugeTimeout = 2 * time.Second // what they do not answer in time is left out
)

// mostRecent is how many entries of the limiter's index are read.
const mostRecent = 500

// gauges asks the worker at each scrape what is the case now, and has a snapshot of what Redis and NATS know.
type gauges struct {
	worker  *consume.Worker
	limiter *ratelimit.Limiter
	outside *snapshot.Snapshot[outside]
	// categories whose limit, or their group's, was full in the last snapshot; used only while one is made
	full []string

	limitUsed, limitMax, reserved, kept, held, unposted, oldest, cooldown, pending, refused, unpublished, clockLag *prometheus.Desc
}

// AddGauges adds what is asked of the worker at each scrape, and of Redis and NATS every few seconds. It is
// called once.
func (m *Metrics) AddGauges(worker *consume.Worker, limiter *ratelimit.Limiter) {
	m.registry.MustRegister(newGauges(worker, limiter))
}

// AddSteering adds how many mutes and temporary limits are in force, as this replica follows them. It is
// called once.
func (m *Metrics) AddSteering(inForce func() (mutes, limits int)) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notifier_mutes", Help: "Mutes in force in this replica.",
	}, func() float64 { mutes, _ := inForce(); return float64(mutes) }))
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notifier_limits_for_a_while",
		Help: "Temporary limits in force in this replica; limit_max shows them.",
	}, func() float64 { _, limits := inForce(); return float64(limits) }))
}

// AddDifferent adds how many different settings the running replicas have, which Redis is asked for every few
// seconds. It is called once.
func (m *Metrics) AddDifferent(different func(ctx context.Context) (int, error)) {
	known := snapshot.New(gaugesFresh, gaugeTimeout, different)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "notifier_settings_different",
		Help: "Different settings that the running replicas have; 1: all have the same, 0: not known.",
	}, func() float64 {
		n, _, err := known.Get(context.Background())
		if err != nil {
			return 0
		}
		return float64(n)
	}))
}

// AddOutcomesLeftOut adds how many outcomes this replica has not recorded. It is called once.
func (m *Metrics) AddOutcomesLeftOut(leftOut func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "notifier_outcomes_left_out_total",
		Help: "Outcomes that were not recorded in the stream of outcomes: above the budget of a second, or it could not be written.",
	}, func() float64 { return float64(leftOut()) }))
}

func newGauges(worker *consume.Worker, limiter *ratelimit.Limiter) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("notifier_"+name, help, labels, nil)
	}
	g := &gauges{
		worker:  worker,
		limiter: limiter,
		limitUsed: desc(
			"limit_used",
			"Slots used in the window, in the fullest tier. At most 100 categories: configured, full and busy ones; and their groups.",
			"scope",
			"category",
		),
		limitMax: desc("limit_max", "Slots of this tier.", "scope", "category"),
		reserved: desc(
			"limit_reserved",
			"Slots of the global limit that LIMIT_RESERVE keeps for this category.",
			"category",
		),
		kept: desc(
			"limit_kept",
			"Slots of these that it has not used, in the longest tier with reserves: no other category can have them now.",
			"category",
		),
		held: desc(
			"held_events",
			"Events held while the worker, or their channel, waits for this; 0 when nothing does.",
			"why",
		),
		unposted: desc(
			"unposted_events",
			"Events that this replica has had admitted for the channel and not posted yet.",
			"channel",
		),
		oldest: desc(
			"unposted_oldest_seconds",
			"How long ago the oldest of these was published; 0: there is none.",
			"channel",
		),
		cooldown: desc(
			"slack_cooldown_seconds",
			"Time left of the longest pause that Slack asked for and that is in force.",
		),
		pending: desc("consumer_pending", "Events in the stream that no replica has received yet."),
		refused: desc("refused_channels", "Channels that reject every message, as seen by this replica."),
		unpublished: desc(
			"dropped_unpublished_total",
			"Dropped events that could not be republished to DROPPED_SUBJECT.",
		),
		clockLag: desc(
			"redis_clock_lag_seconds",
			"How far the clock of Redis is behind the newest admission; above 0 only after it was set back.",
		),
	}
	g.outside = snapshot.New(gaugesFresh, gaugeTimeout, g.ask)
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{g.limitUsed, g.limitMax, g.reserved, g.kept, g.held, g.unposted, g.oldest, g.cooldown, g.pending, g.refused, g.unpublished, g.clockLag} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(g.clockLag, g.limiter.ClockLag().Seconds())
	gauge(g.refused, float64(len(g.worker.RefusedChannels())))
	out <- prometheus.MustNewConstMetric(g.unpublished, prometheus.CounterValue, float64(g.worker.Unpublished()))

	g.collectWaiting(gauge, g.worker.Held(), g.worker.Unposted(), time.Now())
	now, _, _ := g.outside.Get(context.Background()) // there is no error: what is not known is left out
	if now.cooldown != nil {
		gauge(g.cooldown, now.cooldown.Seconds())
	}
	g.collectLimits(gauge, now)
	if now.pending != nil {
		gauge(g.pending, float64(*now.pending))
	}
}

// collectLimits gives how full the limits are, and what is kept for whom. The label category has a group's
// name in its scope.
func (g *gauges) collectLimits(gauge func(*prometheus.Desc, float64, ...string), now outside) {
	for _, usage := range now.usages {
		scope, name := "category", usage.Category
		switch {
		case usage.Group != "":
			scope, name = "group", usage.Group
		case usage.Category == "":
			scope = "global"
		}
		gauge(g.limitUsed, float64(usage.Used), scope, labelOf(name))
		gauge(g.limitMax, float64(usage.Tier.Count), scope, labelOf(name))
	}
	for _, reserve := range now.reserves {
		gauge(g.reserved, float64(reserve.Slots), labelOf(reserve.Category))
		gauge(g.kept, float64(reserve.Kept), labelOf(reserve.Category))
	}
}

// outside is what Redis and NATS know; nil: they do not answer.
type outside struct {
	usages   []ratelimit.Usage // of the fullest tier of each scope
	reserves []ratelimit.Reserve
	cooldown *time.Duration
	pending  *uint64
}

func (g *gauges) ask(ctx context.Context) (outside, error) {
	var now outside
	if left, err := g.limiter.LongestPause(ctx); err == nil {
		now.cooldown = &left
	}
	now.usages = g.usages(ctx)
	now.reserves, _ = g.limiter.Reserves(ctx) // after an error there are none
	if n, known := g.backlog(ctx); known {
		now.pending = &n
	}
	return now, nil
}

// collectWaiting gives what waits, by cause and by channel.
func (g *gauges) collectWaiting(
	gauge func(*prometheus.Desc, float64, ...string),
	held map[string]int,
	unposted []post.Unposted,
	now time.Time,
) {
	for why, events := range held {
		gauge(g.held, float64(events), why)
	}
	for _, u := range unposted {
		gauge(g.unposted, float64(u.Events), u.Channel)
		gauge(g.oldest, secondsSince(u.Oldest, now), u.Channel)
	}
}

// secondsSince is the age of what began then; 0 where nothing did, and where the clock that gave its time is
// ahead.
func secondsSince(then, now time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return max(0, now.Sub(then).Seconds())
}

// backlog asks NATS for as long as ctx allows: while nats.go tries a server that does not answer, it does not
// return, whatever the context.
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

// usages is the fullest tier of the global scope, of each category that has a gauge, and of the groups of
// these.
func (g *gauges) usages(ctx context.Context) []ratelimit.Usage {
	recent, _, err := g.limiter.Recent(ctx, mostRecent)
	if err != nil {
		return nil
	}
	asked := withGauge(g.limiter.Configured(), g.full, recent)
	all, err := g.limiter.Peek(ctx, asked...)
	if err != nil {
		return nil
	}
	usages := fullestTiers(all)
	g.full = fullOf(usages, asked)
	return usages
}

// fullestTiers is the fullest tier of each scope. The tiers of a scope follow one another.
func fullestTiers(all []ratelimit.Usage) []ratelimit.Usage {
	var fullest []ratelimit.Usage
	for _, usage := range all {
		last := len(fullest) - 1
		switch {
		case last < 0 || fullest[last].Category != usage.Category || fullest[last].Group != usage.Group:
			fullest = append(fullest, usage)
		case usage.Used*fullest[last].Tier.Count > fullest[last].Used*usage.Tier.Count:
			fullest[last] = usage
		}
	}
	return fullest
}

// fullOf are those of the categories that were asked for whose limit is full, and for each group that is full
// the first of its own, which keeps the group's gauge: a group is shown with its categories.
func fullOf(usages []ratelimit.Usage, asked []string) []string {
	groups, categories := map[string]bool{}, map[string]bool{}
	for _, usage := range usages {
		if usage.Used >= usage.Tier.Count {
			groups[usage.Group], categories[usage.Category] = true, true
		}
	}
	var full []string
	for _, category := range asked {
		group := ratelimit.GroupOf(category)
		if group != "" && groups[group] || categories[category] {
			full = append(full, category)
			delete(groups, group)
		}
	}
	return full
}

// withGauge chooses the categories that have a gauge: those that the settings name, those that were full,
// because nothing is admitted of them for a while, and those with the latest admissions, which take the place
// of idle ones.
func withGauge(configured, full, recent []string) []string {
	var chosen []string
	known := map[string]bool{"": true} // the global scope's; no worker has written it as a category's
	for _, category := range slices.Concat(configured, full, recent) {
		if !known[category] && utf8.ValidString(category) && len(chosen) < mostCategories {
			known[category] = true
			chosen = append(chosen, category)
		}
	}
	return chosen
}
