package telemetry

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/cached"
	"notifier/internal/consume"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
)

// Redis is read once for all scrapes of a few seconds.
const (
	sharedFresh   = 5 * time.Second
	sharedTimeout = 2 * time.Second
)

// maxRecent bounds how many categories with recent admissions a scrape looks at.
const maxRecent = 200

// Sources supply the gauges.
type Sources struct {
	// Snapshot describes this worker, without a request to any server.
	Snapshot func() snapshot.Snapshot
	// Limiter reads the use of the limits and Slack's pauses from Redis.
	Limiter *ratelimit.Limiter
	// Different counts the different settings of the running workers. An error means that they are unknown.
	Different func(ctx context.Context) (int, error)
	// LogErrors counts the failed writes of the log.
	LogErrors func() uint64
}

// Register adds the gauges and the counter of log errors. Call it once.
func (m *Metrics) Register(sources Sources) {
	m.registry.MustRegister(newGauges(sources), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "notifier_log_errors_total",
		Help: "Failed writes of the log. Events are held until their lines are written.",
	}, func() float64 { return float64(sources.LogErrors()) }))
}

var (
	heldEvents = newDesc("held_events",
		"Events held while the worker, or their channel, waits for this.", "why")
	unpostedEvents = newDesc("unposted_events",
		"Admitted events in the queue of the channel.", "channel")
	unpostedOldest = newDesc("unposted_oldest_seconds",
		"Age of the oldest event in the queue of the channel. 0 if the queue is empty.", "channel")
	refusedChannels = newDesc("refused_channels",
		"Channels that reject every message, as seen by this worker.")
	streamUsed = newDesc("stream_used_ratio",
		"Used share of the stream's max_bytes or max_msgs, looked up every 20 s. Absent if unknown or unbounded.",
		"stream")
	streamStuck = newDesc("stream_unread_stuck",
		"Events in the stream that the consumer will never deliver, looked up every 20 s. Absent if unknown.")
	consumerPending = newDesc("consumer_pending",
		"Events in the stream that no worker has fetched yet, looked up every 20 s. Absent if unknown.")
	limitUsed = newDesc("limit_used",
		"Slots used in the fullest tier. At most 100 categories and 100 groups, the fullest ones.",
		"scope", "category")
	limitMax = newDesc("limit_max", "Slots of the fullest tier.", "scope", "category")
	cooldown = newDesc("slack_cooldown_seconds",
		"Rest of the longest pause that Slack has requested.")
	settingsDifferent = newDesc("settings_different",
		"Different settings of the running workers. 1 if all are equal, absent if unknown.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("notifier_"+name, help, labels, nil)
}

// gauges collects a snapshot of this worker at each scrape, and the state that all workers share from Redis.
type gauges struct {
	sources Sources
	shared  *cached.Value[shared]
}

// shared is the state in Redis. Nil fields are unknown.
type shared struct {
	usages    []ratelimit.Usage
	cooldown  *time.Duration
	different *int
}

func newGauges(sources Sources) *gauges {
	g := &gauges{sources: sources}
	g.shared = cached.New(sharedFresh, sharedTimeout, g.readShared)
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		heldEvents, unpostedEvents, unpostedOldest, refusedChannels, streamUsed, streamStuck, consumerPending,
		limitUsed, limitMax, cooldown, settingsDifferent,
	} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	collectSnapshot(out, g.sources.Snapshot())
	now, _ := g.shared.Get(context.Background()) // never an error
	collectShared(out, now)
}

// send sends one gauge. Prometheus rejects a label that is not UTF-8, and with it the whole scrape.
func send(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// collectSnapshot sends a value for every cause and every channel, also 0: a series that comes and goes is hard
// to alert on.
func collectSnapshot(out chan<- prometheus.Metric, s snapshot.Snapshot) {
	for _, cause := range consume.HeldCauses() {
		send(out, heldEvents, float64(s.HeldFor[cause]), cause)
	}
	refused := 0
	for _, c := range s.Channels {
		age := 0.0
		if !c.Oldest.IsZero() {
			age = max(0, s.Time.Sub(c.Oldest).Seconds()) // the clock of NATS can be ahead
		}
		send(out, unpostedEvents, float64(c.Queued), c.Name)
		send(out, unpostedOldest, age, c.Name)
		if c.Refused != "" {
			refused++
		}
	}
	send(out, refusedChannels, float64(refused))
	for _, stream := range s.Streams {
		if used, bound := stream.Used(); bound != "" {
			send(out, streamUsed, used, stream.Name)
		}
		if stream.Unread != nil {
			send(out, consumerPending, float64(*stream.Unread))
		}
		if stream.Stuck != nil {
			send(out, streamStuck, float64(*stream.Stuck))
		}
	}
}

// collectShared leaves out gauges without a known value. The label category holds the name of a group in the
// scope "group".
func collectShared(out chan<- prometheus.Metric, now shared) {
	for _, usage := range now.usages {
		scope, name := scopeOf(usage)
		send(out, limitUsed, float64(usage.Used), scope, outcome.CategoryName(name))
		send(out, limitMax, float64(usage.Tier.Count), scope, outcome.CategoryName(name))
	}
	if now.cooldown != nil {
		send(out, cooldown, now.cooldown.Seconds())
	}
	if now.different != nil {
		send(out, settingsDifferent, float64(*now.different))
	}
}

func scopeOf(usage ratelimit.Usage) (scope, name string) {
	switch {
	case usage.Group != "":
		return "group", usage.Group
	case usage.Category != "":
		return "category", usage.Category
	}
	return "global", ""
}

func (g *gauges) readShared(ctx context.Context) (shared, error) {
	var now shared
	if rest, err := g.sources.Limiter.LongestPause(ctx); err == nil {
		now.cooldown = &rest
	}
	now.usages = g.readUsages(ctx)
	if n, err := g.sources.Different(ctx); err == nil {
		now.different = &n
	}
	return now, nil
}

// readUsages returns the use of the limits, or nil if it is unknown.
func (g *gauges) readUsages(ctx context.Context) []ratelimit.Usage {
	limiter := g.sources.Limiter
	recent, _, err := limiter.Recent(ctx, maxRecent)
	if err != nil {
		return nil
	}
	var categories []string
	known := map[string]bool{}
	for _, category := range slices.Concat(limiter.Configured(), recent) {
		// Redis can hold names that no worker wrote. An empty one would collide with the global scope.
		if category != "" && utf8.ValidString(category) && !known[category] {
			known[category] = true
			categories = append(categories, category)
		}
	}
	usages, err := limiter.Peek(ctx, categories...)
	if err != nil {
		return nil
	}
	return fullest(usages)
}

// fullest returns the fullest tier of each scope, the fullest scopes first, and bounds the number of groups and
// of categories. A full category stays visible, although it has no new admissions.
func fullest(usages []ratelimit.Usage) []ratelimit.Usage {
	share := func(u ratelimit.Usage) float64 { return float64(u.Used) / float64(u.Tier.Count) }
	slices.SortStableFunc(usages, func(a, b ratelimit.Usage) int { return cmp.Compare(share(b), share(a)) })
	count := map[string]int{}
	type scope struct{ kind, name string }
	known := map[scope]bool{}
	return slices.DeleteFunc(usages, func(usage ratelimit.Usage) bool {
		kind, name := scopeOf(usage)
		if known[scope{kind, name}] || count[kind] == maxCategories {
			return true
		}
		known[scope{kind, name}] = true
		count[kind]++
		return false
	})
}
