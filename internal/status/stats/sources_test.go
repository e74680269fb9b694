package stats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// bySource is what the last hour's sources add up to.
func bySource(t testing.TB, reader *stats.Reader) map[string][]stats.SourceCount {
	t.Helper()
	hour, err := reader.Hour(t.Context())
	kit.Check(t, err)
	slots, err := reader.Sources(t.Context())
	kit.Check(t, err)
	if len(hour.Sources) != 6 || len(slots) != 7 || !slots[6].Start.Before(hour.Now.Add(time.Minute)) || slots[6].End.Sub(slots[0].Start) != 70*time.Minute {
		t.Fatalf("%d slots of the hour, and %+v", len(hour.Sources), slots)
	}
	sums := stats.SumSources(hour.Sources)
	if diff := cmp.Diff(stats.SumSources(slots), sums); diff != "" {
		t.Errorf("the slots have other sums (-slots +hour):\n%s", diff)
	}
	return sums
}

func bySourceSlots(t testing.TB, reader *stats.Reader) []stats.SourceSlot {
	t.Helper()
	slots, err := reader.Sources(t.Context())
	kit.Check(t, err)
	return slots
}

func TestSourcesAreCounted(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		at := time.Now()
		for replica, times := range map[string]int{"r1": 1, "r2": 2} {
			recorder := newRecorder(t, stats.Config{Redis: s.client(t), Replica: replica})
			for range times {
				recorder.Observe("sent", "", "errors", "https://ci.example/1", 1, at)
				recorder.Observe("dropped", "category", "errors", "https://ci.example/1", 1, at)
				recorder.Observe("dropped", "muted", "errors", "https://ci.example/1", 1, at)
				recorder.Observe("dropped", "duplicate", "errors", "b / \xffü<!channel>", 1, at)
				recorder.Observe("dead", "malformed", "errors", "", 1, at)
				recorder.Observe("dropped", "global", "_other", "_other", 1, at)
				recorder.Observe("dead", "malformed", "", "nobody's", 1, at)     // a subject without a category
				recorder.Observe("sent", "", "with\ttab", "nobody's", 1, at)     // no event has it
				recorder.Observe("sent", "", "deploys", "tab\tof nobody", 1, at) // nor this
			}
			run(t, recorder)()
		}
		want := map[string][]stats.SourceCount{
			"errors": {
				{Category: "errors", Source: "https://ci.example/1", Sent: 3, Refused: 6, Total: 9},
				{Category: "errors", Source: "b / \xffü<!channel>", Total: 3},
				{Category: "errors", Total: 3},
			},
			"__other": {{Category: "__other", Source: "__other", Refused: 3, Total: 3}},
			"deploys": {{Category: "deploys", Source: stats.OtherSource, Sent: 3, Total: 3}},
		}
		if diff := cmp.Diff(want, bySource(t, s.reader(t))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		owner := s.owner(t)
		keys, err := owner.Keys(t.Context(), "{n}:sources:*").Result()
		kit.Check(t, err)
		for _, key := range keys {
			if left := owner.PTTL(t.Context(), key).Val(); left < 80*time.Minute || left > 90*time.Minute {
				t.Errorf("%s expires in %s", key, left)
			}
		}
	})
}

// However many sources and categories publishers invent, what is kept of them is bounded, here and in Redis,
// and nothing is lost of the categories that are known.
func TestSourcesAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		const many = 10_000
		at := time.Now()
		for replica := range 3 {
			recorder := newRecorder(t, stats.Config{Redis: s.client(t), Replica: fmt.Sprint("r", replica), Every: time.Hour})
			for i := range many {
				recorder.Observe("dropped", "global", "errors", fmt.Sprintf("source-%d-%d", replica, i), 1, at)
				recorder.Observe("sent", "", "errors", "", 1, at)
			}
			for i := range many {
				recorder.Observe("dropped", "global", fmt.Sprint("category-", replica, "-", i), strings.Repeat("s", 120)+fmt.Sprint(i), 1, at)
			}
			run(t, recorder)()
		}
		sums := bySource(t, s.reader(t))
		if len(sums) > stats.MaxCategories {
			t.Errorf("%d categories, expected at most %d", len(sums), stats.MaxCategories)
		}
		var refused, sent int64
		named := 0
		for _, count := range sums["errors"] {
			refused, sent = refused+count.Refused, sent+count.Sent
			if count.Named() {
				named++
			}
		}
		if named != stats.MaxSources || refused != 3*many || sent != 3*many {
			t.Errorf("%d sources with %d refused and %d sent: %v", named, refused, sent, sums["errors"])
		}
		keys, err := s.owner(t).Keys(t.Context(), "{n}:sources:*").Result()
		kit.Check(t, err)
		if len(keys) > 2 {
			t.Errorf("%d keys: %v", len(keys), keys)
		}
		for _, key := range keys {
			if n := s.owner(t).HLen(t.Context(), key).Val(); n > stats.MaxCategories*(stats.MaxSources+2)*3 {
				t.Errorf("%s has %d fields", key, n)
			}
		}
	})
}
