package stats_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/status/stats"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A flush that was counted, but whose answer was lost, is repeated and not counted again.
func TestAFlushIsCountedOnce(t *testing.T) {
	for name, fault := range redistest.Faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartProcess(t)
			proxy := redistest.StartProxy(t, server.Addr)
			s := store{url: server.URL()}
			recorder := newRecorder(t, stats.Config{Redis: kit.OpenRedis(t, "redis://"+proxy.Addr), Limit: limitText})
			reader := s.reader(t)
			const rounds = 3
			// Two faults fail the call and go-redis's own repetition of it.
			for round := range rounds {
				proxy.Break(fault, fault)
				for range 100 {
					recorder.Observe("dropped", "category", fmt.Sprint("c", round), "ci", 1, time.Now())
				}
				stop := run(t, recorder)
				kit.EventuallyNil(t, func() error {
					if n := sums(t, reader)[fmt.Sprint("c", round, " dropped category")]; n < 100 {
						return fmt.Errorf("%d of 100 are counted", n)
					}
					return nil
				})
				recorder.Observe("sent", "", "last", "", 1, time.Now()) // has the unanswered one repeated before it
				stop()
				kit.EventuallyNil(t, func() error {
					if n := sums(t, reader)["last sent "]; n != int64(round+1) {
						stop = run(t, recorder)
						stop()
						return fmt.Errorf("%d of %d", n, round+1)
					}
					return nil
				})
			}
			for round := range rounds {
				if n := sums(t, reader)[fmt.Sprint("c", round, " dropped category")]; n != 100 {
					t.Errorf("round %d: %d events are counted, want 100", round, n)
				}
				if n := stats.SumSources(bySourceSlots(t, reader))[fmt.Sprint("c", round)][0]; n.Refused != 100 || n.Source != "ci" {
					t.Errorf("round %d: %+v, want 100 of one source", round, n)
				}
				if n := pending(t, s)[fmt.Sprint("category 10/30m c", round)]; n != "100" {
					t.Errorf("round %d: %s drops, want 100", round, n)
				}
			}
		})
	}
}

// Counts wait while Redis is unavailable, and are written once it has recovered.
func TestRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	proxy := redistest.StartProxy(t, server.Addr)
	s := store{url: server.URL()}
	core, logs := observer.New(zap.DebugLevel)
	recorder := newRecorder(t, stats.Config{Redis: kit.OpenRedis(t, "redis://"+proxy.Addr), Log: zap.New(core)})
	reader := s.reader(t)
	proxy.Cut()
	run(t, recorder)
	for range 500 {
		recorder.Observe("sent", "", "errors", "", 1, time.Now())
	}
	kit.EventuallyNil(t, func() error {
		if logs.FilterMessage("counts do not reach Redis").Len() == 0 {
			return fmt.Errorf("nothing was logged")
		}
		return nil
	})
	for range 500 {
		recorder.Observe("sent", "", "errors", "", 1, time.Now())
	}
	if n := len(sums(t, reader)); n > 0 {
		t.Fatalf("%d counts have passed the cut", n)
	}
	proxy.Heal()
	kit.EventuallyNil(t, func() error {
		if n := sums(t, reader)["errors sent "]; n != 1000 {
			return fmt.Errorf("%d of 1000 are counted", n)
		}
		return nil
	})
	kit.EventuallyNil(t, func() error {
		if logs.FilterMessage("counts reach Redis again").Len() != 1 {
			return fmt.Errorf("its end was not logged once")
		}
		return nil
	})
	if n := logs.FilterMessage("counts do not reach Redis").Len(); n != 1 {
		t.Errorf("%d lines of one outage, want one a minute", n)
	}
}

// What waits in memory is bounded: the oldest minutes go first, and their number is logged.
func TestCountsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := store{url: server.URL()}
	core, logs := observer.New(zap.DebugLevel)
	recorder := newRecorder(t, stats.Config{Redis: s.client(t), Log: zap.New(core)})
	now := time.Now()
	for minutes := range 90 { // three hours before it runs at all
		recorder.Observe("sent", "", "errors", "", 1, now.Add(time.Duration(minutes-89)*time.Minute))
		recorder.Observe("sent", "", "old", "", 1, now.Add(-100*24*time.Hour)) // nothing is made of an absurd time
	}
	stop := run(t, recorder)
	kit.Eventually(t, "the last hour is counted", func() bool { return sums(t, s.reader(t))["errors sent "] >= 58 })
	stop()
	var forgotten int64
	for _, line := range logs.FilterMessageSnippet("discarded").All() {
		forgotten += line.ContextMap()["events"].(int64)
	}
	kept := sums(t, s.reader(t))
	if kept["errors sent "] < 58 || kept["errors sent "] > 60 || forgotten < 30 || kept["errors sent "]+kept["old sent "]+forgotten > 180 {
		t.Errorf("%v are kept, %d forgotten", kept, forgotten)
	}
}
