package survival

import (
	"testing"
	"time"

	"notifier/internal/wait"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// installation is a Redis under the load of the workers of all forms.
type installation struct {
	*testing.T
	groups []*replicas

	// The scenario sets sentinels, single, plain or cluster.
	sentinels *redistest.Sentinels
	single    *redistest.Server
	// If set, the first worker of each group reaches the single server through it.
	late    *redistest.Proxy
	plain   *pair
	cluster *redistest.Cluster

	copy *redistest.Server // the replica of the Cluster's master
}

// pair is a primary with a replica. Clients connect to front.
type pair struct {
	primary, replica *redistest.Server
	front            *redistest.Proxy
}

// scenario is a fault of Redis, and the setup for it.
type scenario struct {
	name  string
	start func(in *installation, extra []string) (url string)
	extra []string // more arguments of the servers
	full  bool     // use up most of the limits before the fault
	kills bool     // a worker of each group dies

	inject func(in *installation) // returns once all clients can find a primary again
}

var minReplicas = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}

var (
	cutLink = scenario{
		name:  "a. link cut for 2.5 s, then kill -9",
		start: (*installation).underSentinels, inject: (*installation).killPrimary,
	}
	emptyRestart = scenario{
		name:  "c. empty restart",
		start: (*installation).onOne, full: true, inject: (*installation).restartEmpty,
	}
)

var scenarios = []scenario{
	cutLink,
	{name: "b. the same, and a replica of notifier killed", start: (*installation).underSentinels, kills: true, inject: (*installation).killBoth},
	emptyRestart,
	{name: "d. as a, with min-replicas-to-write 1", start: (*installation).underSentinels, extra: minReplicas, inject: (*installation).killPrimary},
	{name: "e. planned failover under Sentinel", start: (*installation).underSentinels, inject: (*installation).plannedFailover},
	{name: "f. planned failover of a plain replica", start: (*installation).replicated, inject: (*installation).plainFailover},
	{name: "g. planned failover in a Cluster", start: (*installation).inCluster, inject: (*installation).clusterFailover},
	{name: "h. FLUSHALL twice in one quarantine", start: (*installation).onOne, full: true, inject: (*installation).flushTwice},
	{name: "i. FLUSHALL, and a frozen replica of notifier", start: (*installation).onOneWithALateReplica, full: true, inject: (*installation).flushWithoutOne},
}

func TestSurvival(t *testing.T) {
	if rounds == 0 {
		t.Skip("takes minutes: run it with make survive")
	}
	for range rounds {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				play(t, s)
			})
		}
	}
}

// TestFaultsAdmitNothingTwice plays two scenarios in ordinary test runs.
func TestFaultsAdmitNothingTwice(t *testing.T) {
	if testing.Short() || rounds > 0 {
		t.Skip("takes seconds, and TestSurvival plays them too")
	}
	for _, s := range []scenario{cutLink, emptyRestart} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play(t, s)
		})
	}
}

// play plays one round of a scenario.
func play(t *testing.T, s scenario) {
	in := &installation{T: t}
	url := s.start(in, s.extra)
	for _, form := range forms {
		in.groups = append(in.groups, startReplicas(in, form, url))
	}
	answered := func(f *replicas) bool { all, _ := f.resumed(); return all }
	in.mark()
	in.all("each replica is answered", answered)
	if s.full {
		in.pause(pauseFlood)
		in.all("most of the limits are used", func(f *replicas) bool { return f.admitted() > f.form.rules.Global[0].Count*3/4 })
	} else {
		wait.For(t.Context(), time.Second) // some admissions are decided and replicated before the fault
	}
	s.inject(in)
	in.mark()
	in.pause(pauseFlood)
	in.all("each replica is answered again", answered)
	in.all("the limits are used up", (*replicas).usedUp)
	for _, f := range in.groups {
		in.judge(s, f)
	}
}

func (in *installation) mark() {
	for _, f := range in.groups {
		f.mark()
	}
}

// pause sets the pause between two batches of each worker.
func (in *installation) pause(d time.Duration) {
	for _, f := range in.groups {
		f.pause.Store(int64(d))
	}
}

// all waits until a condition holds for all groups.
func (in *installation) all(what string, holds func(*replicas) bool) {
	in.Helper()
	for _, f := range in.groups {
		if !kit.Within(kit.Patience, func() bool { return holds(f) }) {
			in.Fatalf("%s: after %s still not: %s; the last errors: %v", f.form.name, kit.Patience, what, f.lastErrors())
		}
	}
}

// judge records the results of a group and checks them against the bounds.
func (in *installation) judge(s scenario, f *replicas) {
	in.Helper()
	m := measured{silence: f.silence()}
	_, m.stall = f.resumed()
	m.forgotten = f.forgotten(in.T)
	admissions := f.admissions()
	m.excess, m.admitted = excess(f.form.rules, admissions), len(admissions)
	results.add(s.name, f.form.name, m)
	in.Logf("%s: %+v", f.form.name, m)
	if !heals {
		return
	}
	if m.excess > f.missing {
		in.Errorf("%s: %d admissions too many, expected at most %d", f.form.name, m.excess, f.missing)
	}
	if m.excess < 0 {
		in.Errorf("%s: %d slots less than the limits have were given out", f.form.name, -m.excess)
	}
	if !s.kills && m.forgotten > 0 {
		in.Errorf("%s: %d ids were forgotten", f.form.name, m.forgotten)
	}
	if limit := 2 * time.Second; rounds > 0 && m.stall > limit {
		in.Errorf("%s: all were answered %s after there was a primary, expected %s at most", f.form.name, m.stall, limit)
	}
	if in.Failed() {
		for _, r := range f.replicas {
			for _, line := range r.log.All() {
				in.Logf("%s %s %s: %s %v", f.form.name, r.name, line.Time.Format("15:04:05.000"), line.Message, line.ContextMap())
			}
		}
	}
}
