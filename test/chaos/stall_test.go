package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// leaders lists the kinds of faults after which a new leader or primary takes over.
var leaders = []string{leadsStream, leadsConsumer, leadsCluster, leadsIdle, faultPrimary, faultFailover}

// stall is a time without a leader.
type stall struct {
	kind   string
	killed time.Time
	itself time.Duration // until an independent client saw a new leader
}

func (c *cluster) note(s stall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls = append(c.stalls, s)
}

// mostBeyond bounds the time from a new leader until the first worker resumes. The goal is one second,
// which an otherwise idle machine reaches (docs/benchmarks.md). Here ten processes and other tests share
// a few cores, and a starved process must not look like a worker's fault. So the test only finds workers
// that wait for something that never comes.
const mostBeyond = 10 * time.Second

// judgeStalls returns a table of how long leaders were missing, and how much longer workers were idle. It
// leaves out the workers' times if another leader failed meanwhile. It fails the test if the first worker
// exceeds mostBeyond.
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

// wentOn returns the times from a new leader until the first and the last worker logged an event that was
// published after the old leader was killed, at least 0. It ignores workers that were killed meanwhile.
// known is false if another leader was killed before all workers had resumed, or if the run ended too
// early.
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
			return 0, 0, false // the run ended too early
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

// broken reports whether a fault of this kind was in effect between from and to. An empty what
// matches any target. A fault that began at from does not count, because it is the caller's own.
func (a *audit) broken(from, to time.Time, kind, what string) bool {
	return slices.ContainsFunc(a.d.faults.of(kind), func(f fault) bool {
		own := f.when.from.Sub(from).Abs() < 2*time.Millisecond
		return !own && (what == "" || f.what == what) && f.when.overlaps(from, to)
	})
}

// spread formats the median, the maximum and the number of times.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
	return fmt.Sprintf("%s, max %s s (%d)", seconds(times[len(times)/2]), seconds(times[len(times)-1]), len(times))
}
