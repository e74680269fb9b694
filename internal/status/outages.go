package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/internal/term"
)

// stopping are the outages that keep a worker from sending anything. Those in shared are the same for all
// workers, but a worker with nothing to post does not notice them.
var (
	stopping = []string{"nats", "consumer", "redis", "slack", "credentials", "log"}
	shared   = []string{"slack", "credentials"}
)

// outage combines the waits of running workers for one dependency.
type outage struct {
	replicas int
	since    time.Time // earliest. Zero if unknown
	reason   string    // of one of them
}

func (o *outage) add(w snapshot.Wait) {
	o.replicas++
	o.since = earlier(o.since, w.Since)
	o.reason = cut(cause(w.Reason), maxReason)
}

func (v view) outage(dependency string) (o outage) {
	for _, replica := range v.running() {
		waits := waitsOf(replica.Snapshot)
		at := slices.IndexFunc(waits, func(w snapshot.Wait) bool { return w.For == dependency && w.Channel == "" })
		if at >= 0 {
			o.add(waits[at])
		}
	}
	return o
}

// outageFinding describes an outage. One of those in stopping is a failure if no worker sends anything, else
// a warning; any other, such as that of dead letters, is always a failure.
func (v view) outageFinding(dependency, kind, text string) []finding {
	o := v.outage(dependency)
	if o.replicas == 0 {
		return nil
	}
	f := finding{kind: kind, state: Warn, since: o.since}
	if slices.Contains(stopping, dependency) {
		f.stops = v.stopped() || slices.Contains(shared, dependency) && v.nothingSentSince(o.since)
	}
	if f.stops || !slices.Contains(stopping, dependency) {
		f.state = Fail
	}
	f.message = cut(text+v.where(o.replicas)+": "+strings.TrimPrefix(o.reason, text+": "), maxMessage)
	return []finding{f}
}

// waitsOf returns the outages of a worker. A ping for /readyz notices an outage before any event waits; then
// only NotReady has it.
func waitsOf(s snapshot.Snapshot) []snapshot.Wait {
	waits := slices.Clone(s.Waits)
	for _, line := range s.NotReady {
		dependency, reason, _ := strings.Cut(line, ": ")
		known := func(w snapshot.Wait) bool { return w.For == dependency && w.Channel == "" }
		if slices.Contains(stopping, dependency) && !slices.ContainsFunc(waits, known) {
			waits = append(waits, snapshot.Wait{For: dependency, Reason: reason})
		}
	}
	return waits
}

// stopped reports whether no running worker can send anything.
func (v view) stopped() bool {
	running := v.running()
	return len(running) > 0 && !slices.ContainsFunc(running, func(r report.Replica) bool { return !isStopped(r) })
}

// isStopped reports whether a worker sends nothing: it waits for a dependency, or is not ready and has no
// event left to post.
func isStopped(r report.Replica) bool {
	queued := slices.ContainsFunc(r.Snapshot.Channels, func(c snapshot.Channel) bool { return c.Queued > 0 })
	return hasOutage(r) || isUnready(r) && !queued
}

// isUnready reports whether a worker is not ready for another reason than an outage.
func isUnready(r report.Replica) bool { return !r.Snapshot.Ready && !hasOutage(r) }

func hasOutage(r report.Replica) bool {
	return slices.ContainsFunc(waitsOf(r.Snapshot), func(w snapshot.Wait) bool {
		return w.Channel == "" && slices.Contains(stopping, w.For)
	})
}

func (v view) nothingSentSince(begin time.Time) bool {
	return !slices.ContainsFunc(v.running(), func(r report.Replica) bool {
		return r.Snapshot.LastSent.After(begin)
	})
}

func (v view) running() []report.Replica {
	return slices.DeleteFunc(slices.Clone(v.replicas), func(r report.Replica) bool { return r.Silent })
}

// where returns " in 1 of 3 workers", or "" if n counts every running worker.
func (v view) where(n int) string {
	if n == len(v.running()) {
		return ""
	}
	return fmt.Sprintf(" in %d of %s", n, term.Count(len(v.running()), "worker"))
}

func (v view) age(begin time.Time) string { return span(v.now.Sub(begin)) }
