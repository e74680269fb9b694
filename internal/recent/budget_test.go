package recent

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Nothing that is left out is forgotten, however many categories publishers think of: what is recorded and what is counted are all.
func TestNothingLeftOutIsForgotten(t *testing.T) {
	t.Parallel()
	b, now := newBudget(), time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var recorded, counted uint64
	count := func(o Outcome) {
		recorded++
		counted += 1 + o.LeftOut + o.LeftOutOthers
	}
	const categories, each = 10_000, 5
	for range each {
		for i := range categories {
			o := Outcome{Category: fmt.Sprint("c", i), Outcome: "dropped", Reason: "global", EventID: strings.Repeat("x", i%2000)}
			if b.take(&o, now) {
				count(o)
			}
		}
	}
	if len(b.kinds) > mostKinds {
		t.Errorf("%d kinds are kept", len(b.kinds))
	}
	if recorded > burst {
		t.Errorf("%d are recorded at once, expected %d at most", recorded, burst)
	}
	failed := Outcome{Category: "c1", Outcome: "dropped", Reason: "global"}
	now = now.Add(kindIdle / 2)
	if !b.take(&failed, now) {
		t.Fatal("expected room")
	}
	failed.LeftOutOthers += 7
	b.giveBack(&failed) // with all that it counts
	for range 1000 {
		now = now.Add(time.Minute)
		for _, o := range b.due(now, 1000) {
			count(o)
		}
	}
	b.prune(now)
	if len(b.kinds) != 0 {
		t.Errorf("%d idle kinds are kept", len(b.kinds))
	}
	last := Outcome{Category: "last", Outcome: "sent"}
	if !b.take(&last, now) {
		t.Fatal("expected room")
	}
	count(last)
	if want := uint64(categories*each + 2 + 7); counted != want || b.total() != want-7-recorded {
		t.Errorf("%d are accounted for, and %d of them as left out; expected %d and %d", counted, b.total(), want, want-7-recorded)
	}
}

// In a storm an outcome that is left out costs little, and no memory.
func TestAStormCostsNoMemory(t *testing.T) {
	b, now := newBudget(), time.Now()
	o := Outcome{Category: "noisy", Outcome: "dropped", Reason: "category", EventID: "e-1", Limit: "10/30m"}
	for range 100 {
		b.take(&o, now)
	}
	if n := testing.AllocsPerRun(1000, func() { b.take(&o, now) }); n > 0 {
		t.Errorf("%.1f allocations for an outcome that is left out", n)
	}
}

// BenchmarkRecord is what a settled event costs in a storm of one category.
func BenchmarkRecord(b *testing.B) {
	r := &Recorder{budget: newBudget(), queue: make(chan Outcome, queued)}
	o := Outcome{Time: time.Now(), Category: "noisy", Outcome: "dropped", Reason: "category", EventID: "e-1", Limit: "10/30m", Subject: "notify.noisy"}
	b.ReportAllocs()
	for b.Loop() {
		r.Record(o)
	}
}
