package stats_test

import (
	"fmt"
	"testing"
	"time"

	"notifier/internal/status/stats"
)

// BenchmarkObserve is what a settled event costs, by how many categories there are; beyond 100 they count as one.
func BenchmarkObserve(b *testing.B) {
	for _, categories := range []int{1, 100, 10_000} {
		names := make([]string, categories)
		for i := range names {
			names[i] = fmt.Sprintf("category-%d", i)
		}
		at := time.Now()
		b.Run(fmt.Sprintf("%d categories", categories), func(b *testing.B) {
			recorder := newRecorder(b, stats.Config{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				recorder.Observe("dropped", "global", names[i%categories], "", 1, at)
			}
		})
		b.Run(fmt.Sprintf("%d categories, in parallel", categories), func(b *testing.B) {
			recorder := newRecorder(b, stats.Config{})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					recorder.Observe("dropped", "global", names[i%categories], "", 1, at)
				}
			})
		})
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	recorder := newRecorder(t, stats.Config{})
	at := time.Now()
	names := make([]string, 500)
	for i := range names {
		names[i] = fmt.Sprint("category-", i)
	}
	i := 0
	observe := func() {
		recorder.Observe("dropped", "global", names[i%len(names)], "", 1, at)
		recorder.Observe("sent", "", names[i%len(names)], "", 1, at)
		i++
	}
	for range names {
		observe()
	}
	if allocs := testing.AllocsPerRun(1000, observe); allocs > 0 {
		t.Errorf("%v allocations for each event, want none", allocs)
	}
}
