package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// fault is one deliberate failure.
type fault struct {
	kind string // such as "kill", "redis restart"
	what string // the target, such as a worker
	when span
}

func (f fault) String() string {
	return fmt.Sprintf("%s to %s %s %s", clock(f.when.from), clock(f.when.to), f.kind, f.what)
}

// faultLog records the faults of a run.
type faultLog struct {
	begun time.Time

	mu       sync.Mutex
	faults   []fault
	problems []string // errors of the product or of the test
}

func (d *faultLog) note(kind, what string, from time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, fault{kind, what, span{from, time.Now()}})
}

// complain records an error of the product, or of the test itself.
func (d *faultLog) complain(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, err.Error())
}

// of returns the faults of the given kinds.
func (d *faultLog) of(kinds ...string) []fault {
	var found []fault
	for _, f := range d.faults {
		if slices.Contains(kinds, f.kind) {
			found = append(found, f)
		}
	}
	return found
}

// around lists the faults that overlap the given time, as evidence.
func (d *faultLog) around(from, to time.Time) string {
	var found []string
	for _, f := range d.faults {
		if f.when.overlaps(from, to) {
			found = append(found, f.String())
		}
	}
	return strings.Join(found, "\n      ")
}

// counts returns the number of faults of each kind.
func (d *faultLog) counts() string {
	counts := map[string]int{}
	for _, f := range d.faults {
		counts[f.kind]++
	}
	var parts []string
	for kind, n := range counts {
		parts = append(parts, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// clock formats a time of day as reported problems show it.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
