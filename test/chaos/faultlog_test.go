package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// fault is something that was broken on purpose, and for how long.
type fault struct {
	kind string // such as "kill", "redis restart"
	what string // whom it hit
	when span
}

func (f fault) String() string {
	return fmt.Sprintf("%s to %s %s %s", clock(f.when.from), clock(f.when.to), f.kind, f.what)
}

// faultLog is what was broken when.
type faultLog struct {
	begun time.Time

	mu       sync.Mutex
	faults   []fault
	problems []string // what went wrong with a worker that should not have
}

func (d *faultLog) note(kind, what string, from time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, fault{kind, what, span{from, time.Now()}})
}

// complain notes an error of the product, or of the test itself.
func (d *faultLog) complain(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems = append(d.problems, err.Error())
}

// of gives the faults of the kinds.
func (d *faultLog) of(kinds ...string) []fault {
	var found []fault
	for _, f := range d.faults {
		if slices.Contains(kinds, f.kind) {
			found = append(found, f)
		}
	}
	return found
}

// around returns which faults there were at some time, as evidence.
func (d *faultLog) around(from, to time.Time) string {
	var found []string
	for _, f := range d.faults {
		if f.when.overlaps(from, to) {
			found = append(found, f.String())
		}
	}
	return strings.Join(found, "\n      ")
}

// counts is how many faults there were of each kind.
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

// clock is a time of day, as problems name it.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
