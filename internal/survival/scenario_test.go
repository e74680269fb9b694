package survival

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// world is a Redis with the replicas of all forms, under load.
type world struct {
	*testing.T
	sentinels *redistest.Sentinels
	single    *redistest.Server
	fleets    []*fleet
}

// scenario is something that happens to a Redis.
type scenario struct {
	name   string
	single bool     // one server instead of a primary with two replicas under Sentinels
	extra  []string // further arguments of the servers
	full   bool     // most of the limits that last are used up before
	kills  bool     // a replica of each fleet dies in it: the excess is at most what that one had admitted

	strike func(w *world) // does it, and returns when there is a primary that all who ask the Sentinels find
}

var minReplicas = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}

var scenarios = []scenario{
	{name: "a. link cut for 2.5 s, then kill -9", strike: (*world).killPrimary},
	{name: "b. the same, and a replica killed", kills: true, strike: (*world).killBoth},
	{name: "c. empty restart", single: true, full: true, strike: (*world).restartEmpty},
	{name: "d. bare SENTINEL FAILOVER", strike: (*world).sentinelFailover},
	{name: "e. planned failover, step by step", strike: (*world).plannedFailover},
	{name: "f. bare FAILOVER", strike: (*world).bareFailover},
	{name: "g. as a, with min-replicas-to-write 1", extra: minReplicas, strike: (*world).killPrimary},
	{name: "h. kill -9 alone", strike: (*world).killAlone},
}

func TestSurvival(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
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

// play is one round of a scenario.
func play(t *testing.T, s scenario) {
	w := &world{T: t}
	url := ""
	if s.single {
		w.single = redistest.StartProcess(t, s.extra...)
		url = "redis://" + w.single.Addr + "/0"
	} else {
		w.sentinels = redistest.StartSentinels(t, 2, s.extra...)
		url = w.sentinels.URL()
		for _, watcher := range w.sentinels.Watchers {
			// An election that nobody wins is repeated after twice this time.
			testkit.Check(t, watcher.Client(t).Do(t.Context(), "SENTINEL", "SET", "main", "failover-timeout", 4000).Err())
		}
	}
	for _, form := range forms {
		w.fleets = append(w.fleets, startFleet(t, form, url))
	}
	answered := func(f *fleet) bool { all, _ := f.resumed(); return all }
	w.mark()
	w.all("each replica is answered", answered)
	if s.full {
		w.pause(pauseFlood)
		w.all("most of the limits are used", func(f *fleet) bool { return f.form.rolls() || f.admitted() > f.form.rules.Global[0].Count*3/4 })
	} else {
		pass(t.Context(), time.Second) // so much is decided, and replicated, before anything happens
	}
	s.strike(w)
	struck := time.Now()
	w.mark()
	w.pause(pauseFlood)
	w.all("each replica is answered again", answered)
	w.all("the limits are used up", func(f *fleet) bool { return f.form.rolls() || f.usedUp() })
	for _, f := range w.fleets {
		if f.form.rolls() {
			pass(t.Context(), time.Until(struck.Add(2*f.form.window())))
		}
		w.judge(s, f)
	}
}

func (w *world) mark() {
	for _, f := range w.fleets {
		f.mark()
	}
}

// pause sets how long each replica waits between two batches.
func (w *world) pause(d time.Duration) {
	for _, f := range w.fleets {
		f.pause.Store(int64(d))
	}
}

// all waits until something holds for all fleets.
func (w *world) all(what string, holds func(*fleet) bool) {
	w.Helper()
	for _, f := range w.fleets {
		if !testkit.Within(testkit.Patience, func() bool { return holds(f) }) {
			w.Fatalf("%s: after %s still not: %s; the last errors: %v", f.form.name, testkit.Patience, what, f.lastErrors())
		}
	}
}

// judge notes what was measured, and holds it against the bars.
func (w *world) judge(s scenario, f *fleet) {
	w.Helper()
	m := measured{silence: f.silence()}
	_, m.stall = f.resumed()
	if !f.form.rolls() {
		m.forgotten = f.forgotten(w.T)
	}
	admissions := f.admissions()
	m.excess, m.admitted = excess(f.form.rules, admissions), len(admissions)
	bound := 0
	if s.kills {
		bound = len(f.replicas[0].admissions)
	}
	results.add(s.name, f.form.name, m)
	w.Logf("%s: %+v", f.form.name, m)
	if !heals {
		return
	}
	if m.excess > bound {
		w.Errorf("%s: %d admissions too many, expected at most %d", f.form.name, m.excess, bound)
	}
	if m.excess < 0 && !f.form.rolls() { // of rolling windows only a lower bound is known
		w.Errorf("%s: %d slots less than the limits have were given out", f.form.name, -m.excess)
	}
	if !s.kills && m.forgotten > 0 {
		w.Errorf("%s: %d ids were forgotten", f.form.name, m.forgotten)
	}
	if limit := 2 * time.Second; strict && m.stall > limit {
		w.Errorf("%s: all were answered %s after there was a primary, expected %s at most", f.form.name, m.stall, limit)
	}
	if w.Failed() {
		for _, r := range f.replicas {
			for _, line := range r.log.All() {
				w.Logf("%s %s %s: %s %v", f.form.name, r.name, line.Time.Format("15:04:05.000"), line.Message, line.ContextMap())
			}
		}
	}
}

// killPrimary kills a primary from which nothing has come to its replicas for a while.
func (w *world) killPrimary() {
	w.sentinels.Front.CutReplication()
	pass(w.Context(), 2500*time.Millisecond)
	w.sentinels.Primary.Stop(w.T)
	w.sentinels.Promoted(w.T)
}

// killBoth is killPrimary with a replica of each fleet that dies in the same moment.
func (w *world) killBoth() {
	w.sentinels.Front.CutReplication()
	pass(w.Context(), 2500*time.Millisecond)
	w.sentinels.Primary.Stop(w.T)
	for _, f := range w.fleets {
		f.replicas[0].kill()
		<-f.replicas[0].ended
	}
	w.sentinels.Promoted(w.T)
}

func (w *world) killAlone() {
	w.sentinels.Primary.Stop(w.T)
	w.sentinels.Promoted(w.T)
}

// restartEmpty kills a server that writes nothing to disk, and starts it again.
func (w *world) restartEmpty() {
	w.single.Stop(w.T)
	pass(w.Context(), 300*time.Millisecond)
	w.single.Restart(w.T)
}

func (w *world) sentinelFailover() {
	w.sentinels.Failover(w.T)
	w.sentinels.Promoted(w.T)
}

// plannedFailover is what docs/operations.md describes.
func (w *world) plannedFailover() {
	primary := w.sentinels.Primary.Client(w.T)
	testkit.Check(w.T, primary.Do(w.Context(), "CLIENT", "PAUSE", 60_000, "WRITE").Err())
	testkit.EventuallyNil(w.T, func() error { return caughtUp(w.Context(), primary) })
	w.sentinels.Failover(w.T)
	promoted := w.sentinels.Promoted(w.T)
	host, port, err := net.SplitHostPort(promoted.Addr)
	testkit.Check(w.T, err)
	testkit.Check(w.T, primary.Do(w.Context(), "REPLICAOF", host, port).Err())
	testkit.Check(w.T, primary.Do(w.Context(), "CLIENT", "UNPAUSE").Err())
}

// caughtUp returns what is missing until all replicas of a primary have all that it has.
func caughtUp(ctx context.Context, primary *redis.Client) error {
	info, err := primary.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	_, offset, _ := strings.Cut(info, "master_repl_offset:")
	offset, _, _ = strings.Cut(offset, "\r")
	if have := strings.Count(info, "offset="+offset+","); have != 2 {
		return fmt.Errorf("%d replicas have all up to %s, expected 2", have, offset)
	}
	return nil
}

// bareFailover is the command that Sentinels know nothing of.
func (w *world) bareFailover() {
	testkit.Check(w.T, w.sentinels.Primary.Client(w.T).Do(w.Context(), "FAILOVER").Err())
	w.sentinels.Promoted(w.T)
}
