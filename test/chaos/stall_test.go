package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// leaders are the kinds of faults after which somebody else has to lead.
var leaders = []string{leadsStream, leadsConsumer, leadsCluster, leadsIdle, faultPrimary, faultFailover}

// stall is a time in which a leader was missing.
type stall struct {
	kind   string
	killed time.Time
	itself time.Duration // until the servers had another one, as a client that is no worker sees it
}

func (c *cluster) note(s stall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls = append(c.stalls, s)
}

// mostBeyond is what fails the test. The aim is a second, and so it is on a machine that has nothing else to
// do; docs/benchmarks.md has what was measured. Here ten processes and other tests share a few cores, and a
// pause of theirs must not be taken for a mistake of a worker's. What is left to find is a worker that waits
// for something that does not come.
const mostBeyond = 10 * time.Second

// judgeStalls is a table of how long leaders were missing, and how much longer workers did nothing. Times of
// two at once are left out.
func (c *cluster) judgeStalls(a *audit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %5s %18s %28s %28s", "leader killed", "times", "until another one", "beyond it, first worker", "beyond it, last worker")
	for _, kind := range leaders {
		var itself, first, last []time.Duration
		for _, s := range c.stalls {
			if s.kind != kind {
				continue
			}
			itself = append(itself, s.itself)
			one, all, known := a.wentOn(s)
			if !known {
				continue
			}
			first, last = append(first, one), append(last, all)
			c.d.Logf("%s %s: another one after %.2f s, the first worker %.2f s and the last one %.2f s after that", clock(s.killed), kind,
				s.itself.Seconds(), one.Seconds(), all.Seconds())
			if one > mostBeyond {
				c.d.Errorf("%s killed at %s: no worker had done anything %s after there was another one, expected at most %s",
					kind, clock(s.killed), one, mostBeyond)
			}
		}
		fmt.Fprintf(&b, "\n%-22s %5d %18s %28s %28s", kind, len(itself), spread(itself), spread(first), spread(last))
	}
	return b.String()
}

// wentOn is when the first worker, and when the last one, had a line about an event that was published after
// a leader was killed, as the time since there was another one, and at least 0. Workers that were killed then
// do not count. It is not known where a server was killed before all had gone on.
func (a *audit) wentOn(s stall) (first, last time.Duration, known bool) {
	lines := map[*worker]time.Time{}
	for _, l := range a.settled {
		e := a.events[l.EventID]
		if _, there := lines[l.process.worker]; !there && e != nil && e.acks[0].at.After(s.killed) && l.Time.After(s.killed) {
			lines[l.process.worker] = l.Time
		}
	}
	var times []time.Duration
	for _, k := range a.d.workers {
		at, there := lines[k]
		if a.broken(s.killed, at, faultKill, k.name) {
			continue
		}
		if !there && s.kind != leadsIdle {
			return 0, 0, false // the run was over before
		}
		if !there {
			continue
		}
		times = append(times, max(0, at.Sub(s.killed)-s.itself))
	}
	if len(times) == 0 {
		return 0, 0, false
	}
	first, last = slices.Min(times), slices.Max(times)
	if s.kind == leadsIdle {
		last = first // there was one event
	}
	for _, kind := range leaders {
		if a.broken(s.killed.Add(time.Millisecond), s.killed.Add(s.itself+last), kind, "") {
			return 0, 0, false
		}
	}
	return first, last, true
}

// broken reports whether something was broken between two times, or was before and not repaired yet. An empty
// what is anything; a fault that began with the first of the times is left out.
func (a *audit) broken(from, to time.Time, kind, what string) bool {
	return slices.ContainsFunc(a.d.faults.of(kind), func(f fault) bool {
		own := f.when.from.Sub(from).Abs() < 2*time.Millisecond
		return !own && (what == "" || f.what == what) && f.when.overlaps(from, to)
	})
}

// spread is the median and the largest of some times.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
	return fmt.Sprintf("%s, max %s s (%d)", seconds(times[len(times)/2]), seconds(times[len(times)-1]), len(times))
}
