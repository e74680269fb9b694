package recent

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// However many categories publishers think of, what is recorded and what is counted as left out are all
// events.
func TestNothingLeftOutIsForgotten(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(), time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var recorded, counted uint64
	drain := func() {
		for o, found, _ := l.next(now); found; o, found, _ = l.next(now) {
			recorded++
			counted += 1 + o.LeftOut + o.LeftOutOthers
		}
	}
	const categories, each = 10_000, 5
	for range each {
		for i := range categories {
			addOne(l, Outcome{Category: fmt.Sprint("c", i), Outcome: "dropped", Reason: "global"}, now)
		}
	}
	if len(l.kinds) > mostKinds || len(l.latest) > mostKinds {
		t.Errorf("%d kinds and %d latest outcomes are kept", len(l.kinds), len(l.latest))
	}
	if drain(); recorded > burst {
		t.Errorf("%d are recorded at once, expected %d at most", recorded, burst)
	}
	l.lose(Outcome{Category: "c1", Outcome: "dropped", Reason: "global", LeftOut: 5, LeftOutOthers: 7})
	l.lose(Outcome{Category: "unknown", Outcome: "dropped", Reason: "global", LeftOut: 9})
	for range 1000 {
		now = now.Add(time.Minute)
		drain()
	}
	if len(l.kinds) > mostKinds/2 || len(l.latest) > 0 {
		t.Errorf("%d idle kinds and %d latest outcomes are kept", len(l.kinds), len(l.latest))
	}
	// with what is counted for its kind
	addOne(l, Outcome{Category: "c1", Outcome: "dropped", Reason: "global"}, now)
	drain()
	const lost = 2 + 5 + 7 + 9
	if want := uint64(categories*each + 1 + lost); counted != want {
		t.Errorf("%d are accounted for, expected %d", counted, want)
	}
	if want := uint64(categories*each+1+2) - recorded; l.leftOut() != want {
		t.Errorf("%d are counted as left out, expected %d", l.leftOut(), want)
	}
}

// What was left out of a kind that is forgotten counts among others.
func TestAForgottenKindIsCounted(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(), time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	l.lose(Outcome{Category: "before"})
	var counted uint64
	const kinds = 2 * mostKinds
	for i := range kinds {
		now = now.Add(time.Second)
		addOne(l, Outcome{Category: fmt.Sprint("c", i), Outcome: "sent"}, now)
		for o, found, _ := l.next(now); found; o, found, _ = l.next(now) {
			counted += 1 + o.LeftOut + o.LeftOutOthers
			if i == 0 {
				l.lose(Outcome{Category: "c0", Outcome: "sent"})
			}
		}
	}
	if want := uint64(kinds + 2); counted != want {
		t.Errorf("%d are accounted for, expected %d", counted, want)
	}
}

// addOne adds one outcome.
func addOne(l *limiter, o Outcome, now time.Time) {
	l.add(kindOf(o), 1, func(int) Outcome { return o }, now)
}

// Of a batch that there is no room for, the last waits, and only that is made.
func TestABatchIsRecordedAsFarAsThereIsRoom(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(), time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	noisy := Kind{"noisy", "dropped", "category"}
	var made []int
	build := func(i int) Outcome {
		made = append(made, i)
		return Outcome{Category: "noisy", Outcome: "dropped", Reason: "category", StreamSeq: uint64(i)}
	}
	for range 2 {
		made = nil
		l.add(noisy, 500, build, now)
	}
	if !slices.Equal(made, []int{499}) {
		t.Errorf("made %v of the second batch, expected the last", made)
	}
	var last Outcome
	records := 0
	for range 2 {
		for o, found, _ := l.next(now); found; o, found, _ = l.next(now) {
			last = o
			records++
		}
		now = now.Add(time.Minute)
	}
	if records != kindBurst+1 || last.StreamSeq != 499 || last.LeftOut != 1000-kindBurst-1 {
		t.Errorf("%d records, the last is %d after %d that are left out; expected %d, 499 and %d",
			records, last.StreamSeq, last.LeftOut, kindBurst+1, 1000-kindBurst-1)
	}
	if got := l.leftOut(); got != 1000-kindBurst-1 {
		t.Errorf("%d are left out, expected %d", got, 1000-kindBurst-1)
	}
}

// A storm costs no memory for what it leaves out.
func TestAStormCostsNoMemory(t *testing.T) {
	r := &Recorder{limiter: newLimiter(), added: make(chan struct{}, 1)}
	o := Outcome{Category: "noisy", Outcome: "dropped", Reason: "category", EventID: "e-1", Limit: "10/30m"}
	build := func(int) Outcome { return o }
	for range 100 {
		r.Record(kindOf(o), 1, build)
	}
	if n := testing.AllocsPerRun(1000, func() { r.Record(kindOf(o), 1, build) }); n > 0 {
		t.Errorf("%.1f allocations for an outcome that is left out", n)
	}
}
