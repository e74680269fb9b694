package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/status/stats"
)

// streamGauges shows how full the streams are, as this replica has last seen them.
type streamGauges struct {
	list func() []stats.Stream
	used *prometheus.Desc
}

// AddStreams adds how full the streams are. One without a bound, and one that cannot be looked up, has no
// value. It is called once.
func (m *Metrics) AddStreams(list func() []stats.Stream) {
	m.registry.MustRegister(&streamGauges{list: list, used: prometheus.NewDesc(
		"notifier_stream_used_ratio",
		"Share of its max_bytes or max_msgs that the stream has used, as looked up every 20 s; none where it has no bound, or is not known.",
		[]string{"stream"},
		nil,
	)})
}

// Describe implements prometheus.Collector.
func (g *streamGauges) Describe(out chan<- *prometheus.Desc) { out <- g.used }

// Collect implements prometheus.Collector.
func (g *streamGauges) Collect(out chan<- prometheus.Metric) {
	for _, stream := range g.list() {
		if stream.Unknown == "" && stream.Bound != "" {
			out <- prometheus.MustNewConstMetric(g.used, prometheus.GaugeValue, stream.Used, stream.Name)
		}
	}
}
