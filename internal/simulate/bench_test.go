//go:build !production

package simulate_test

import (
	"testing"
	"time"

	"notifier/internal/simulate"
	"notifier/internal/testkit"
)

// BenchmarkRun decides 100,000 events of a week under the default limits. b.N is the number of such weeks.
//
//	go test -run '^$' -bench Run -benchtime 1x ./internal/simulate
func BenchmarkRun(b *testing.B) {
	const n = 100_000
	events := read(b, week(n)).Events
	for b.Loop() {
		sent := 0
		err := simulate.Run(b.Context(), events, testkit.Rules("100/30m", "10/30m", ""), day, func(v simulate.Verdict) error {
			if v.Outcome == "sent" {
				sent++
			}
			return nil
		})
		testkit.Check(b, err)
		if sent == 0 || sent == n {
			b.Fatalf("%d of %d events are sent, expected some", sent, n)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(0, "ns/op") // an operation is a week of events
}

const day = 24 * time.Hour
