package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"notifier/internal/consume/post"
)

// Each cause and each channel has its value, also where that is 0: a series that comes and goes cannot be
// alerted on.
func TestGaugesShowWhatWaits(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 2, 30, 0, time.UTC)
	g := newGauges(nil, nil)
	names := map[*prometheus.Desc]string{g.held: "held", g.unposted: "unposted", g.oldest: "oldest"}
	got := map[string]float64{}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		got[names[desc]+" "+strings.Join(labels, " ")] = value
	}
	g.collectWaiting(gauge, map[string]int{"slack": 42, "redis": 0}, []post.Unposted{
		{Channel: "#alerts", Events: 42, Oldest: now.Add(-90 * time.Second), Why: "slack"},
		{Channel: "#ahead", Events: 1, Oldest: now.Add(time.Second)},
		{Channel: "#quiet"},
	}, now)
	want := map[string]float64{
		"held slack": 42, "held redis": 0,
		"unposted #alerts": 42, "oldest #alerts": 90,
		"unposted #ahead": 1, "oldest #ahead": 0,
		"unposted #quiet": 0, "oldest #quiet": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
