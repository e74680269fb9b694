package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/devstack/simulate"
	"notifier/test/kit"
)

// BenchmarkRun decides 100,000 events of several shapes, and 10,000 in the shape that sends all of them,
// because the store sorts a whole window at each decision. Each iteration decides all events.
//
//	GOGC=400 go test -run '^$' -bench Run -benchtime 1x ./internal/devstack/simulate
func BenchmarkRun(b *testing.B) {
	const n = 100_000
	// spread generates n events, distance apart, in turn from each category.
	spread := func(n int, distance time.Duration, categories int) string {
		return repeat(n, func(i int) string {
			return at(time.Duration(i)*distance, fmt.Sprintf("category-%d", i%categories), fmt.Sprintf(`"id":"event-%d"`, i))
		})
	}
	for _, shape := range []struct {
		name, text           string
		global, category     string
		group, reserve       string
		fewestSent, mostSent int
	}{
		{name: "AWeek", text: week(n), global: "100/30m", category: "10/30m", fewestSent: 10_000, mostSent: 40_000},
		{name: "AStorm", text: spread(n, 36*time.Millisecond, 20), global: "100/30m", category: "10/30m", fewestSent: 200, mostSent: 300},
		{name: "AllAreSent", text: spread(n/10, 360*time.Millisecond, 20), global: "1000000/24h", category: "1000000/24h", fewestSent: n / 10, mostSent: n / 10},
		{name: "ManyCategories", text: spread(n, 6*time.Second, 10_000), global: "100/30m", category: "10/30m", fewestSent: 30_000, mostSent: 40_000},
		{name: "EachMicrosecond", text: spread(n, time.Microsecond, 20), global: "100/30m", category: "10/30m", fewestSent: 100, mostSent: 100},
		{name: "LevelsAndReserve", text: week(n), global: "100/30m", category: "10/30m", group: "50/30m", reserve: "category-7=5", fewestSent: 10_000, mostSent: 40_000},
		{name: "Buckets", text: week(n), global: "1000/24h:15m", category: "100/24h:fixed", fewestSent: 1000, mostSent: 40_000},
	} {
		b.Run(shape.name, func(b *testing.B) {
			events := read(b, shape.text).Events
			rules := levels(kit.Rules(shape.global, shape.category, ""), shape.group, "", shape.reserve)
			for b.Loop() {
				sent := 0
				err := simulate.Run(b.Context(), events, rules, day, func(v simulate.Verdict) error {
					if v.Outcome == "sent" {
						sent++
					}
					return nil
				})
				kit.Check(b, err)
				if sent < shape.fewestSent || sent > shape.mostSent {
					b.Fatalf("%d events are sent, expected %d to %d", sent, shape.fewestSent, shape.mostSent)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const day = 24 * time.Hour
