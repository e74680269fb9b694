package survival

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/consume/wait"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// The installations.

func (w *installation) onOne(extra []string) (url string) {
	w.single = redistest.StartProcess(w.T, extra...)
	return w.single.URL()
}

func (w *installation) underSentinels(extra []string) (url string) {
	w.sentinels = redistest.StartSentinels(w.T, 2, extra...)
	w.configure("SENTINEL", "SET", "main", "failover-timeout", 4000) // an election that nobody wins is repeated after twice this time
	return w.sentinels.URL()
}

func (w *installation) onOneWithALateReplica(extra []string) (url string) {
	url = w.onOne(extra)
	w.late = redistest.StartProxy(w.T, w.single.Addr)
	return url
}

// underSlowSentinels has Sentinels that look as seldom as they do by themselves.
func (w *installation) underSlowSentinels(extra []string) (url string) {
	url = w.underSentinels(extra)
	w.configure("SENTINEL", "SET", "main", "down-after-milliseconds", 30_000, "failover-timeout", 60_000)
	w.configure("SENTINEL", "DEBUG", "PING-PERIOD", 1000, "INFO-PERIOD", 10_000, "PUBLISH-PERIOD", 2000)
	return url
}

// configure gives a command to each Sentinel.
func (w *installation) configure(command ...any) {
	w.Helper()
	for _, watcher := range w.sentinels.Watchers {
		kit.Check(w.T, watcher.Client(w.T).Do(w.Context(), command...).Err())
	}
}

func (w *installation) replicated(extra []string) (url string) {
	primary := redistest.StartProcess(w.T, extra...)
	w.plain = &pair{primary: primary, replica: primary.StartReplica(w.T), front: redistest.StartProxy(w.T, primary.Addr)}
	return "redis://" + w.plain.front.Addr + "/0"
}

func (w *installation) inCluster(extra []string) (url string) {
	w.cluster = redistest.StartCluster(w.T, 1, extra...)
	w.copy = w.cluster.AddReplica(w.T, w.cluster.Nodes[0])
	return w.cluster.URL()
}

// What happens to them.

// killPrimary kills a primary from which nothing has come to its replicas for a while.
func (w *installation) killPrimary() {
	w.sentinels.Front.CutReplication()
	wait.For(w.Context(), 2500*time.Millisecond)
	w.sentinels.Primary.Stop(w.T)
	w.sentinels.Promoted(w.T)
}

// killBoth is killPrimary with a replica of each group that dies in the same moment.
func (w *installation) killBoth() {
	w.sentinels.Front.CutReplication()
	wait.For(w.Context(), 2500*time.Millisecond)
	w.sentinels.Primary.Stop(w.T)
	for _, f := range w.groups {
		f.replicas[0].kill()
		<-f.replicas[0].ended
		f.missing = len(f.replicas[0].admissions)
	}
	w.sentinels.Promoted(w.T)
}

func (w *installation) killAlone() {
	w.sentinels.Primary.Stop(w.T)
	w.sentinels.Promoted(w.T)
}

// restartEmpty kills a server that writes nothing to disk, and starts it again.
func (w *installation) restartEmpty() {
	w.single.Stop(w.T)
	wait.For(w.Context(), 300*time.Millisecond)
	w.single.Restart(w.T)
}

func (w *installation) restartEmptyTwice() {
	w.restartEmpty()
	wait.For(w.Context(), 300*time.Millisecond) // the replicas are putting back what they know
	w.restartEmpty()
}

func (w *installation) flush() { kit.Check(w.T, w.single.Client(w.T).FlushAll(w.Context()).Err()) }

// flushTwice has nothing from the first put-back left when the second one begins, and the replicas know the store's token.
func (w *installation) flushTwice() {
	w.flush()
	wait.For(w.Context(), 700*time.Millisecond)
	w.flush()
}

// flushWithoutOne keeps a replica of each group from Redis until the others have used what it could not put back. From then on it
// has to find all of that taken.
func (w *installation) flushWithoutOne() {
	w.late.Cut()
	for _, f := range w.groups {
		r := f.replicas[0]
		r.mu.Lock()
		f.missing = len(r.admissions) + batchSize // what it is being given in this moment
		r.mu.Unlock()
	}
	w.flush()
	wait.For(w.Context(), 4*time.Second)
	w.late.Heal()
}

func (w *installation) sentinelFailover() {
	w.sentinels.Failover(w.T)
	w.sentinels.Promoted(w.T)
}

// The steps of planned failovers, as docs/operating.md has them. HOST and PORT are those of the new primary.
const (
	pauseWrites    = "client pause 60000 write"
	lookAtReplicas = "info replication"
	failOver       = "sentinel failover main" // again after 10 s, should they give up
	askForPrimary  = "sentinel get-master-addr-by-name main"
	makeReplica    = "replicaof HOST PORT"
	endPause       = "client unpause"
	handOver       = "failover to HOST PORT timeout 10000"
	takeOver       = "cluster failover"
)

// TestPlannedFailoversAreDocumented: the steps that are played here are those that docs/operating.md has.
func TestPlannedFailoversAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/operating.md")
	kit.Check(t, err)
	_, section, _ := strings.Cut(string(document), "\n### Planned failover\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for line := range strings.Lines(section) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "redis-cli" {
			got = append(got, strings.Join(words[2:], " ")) // after the server
		}
	}
	want := []string{pauseWrites, lookAtReplicas, failOver, askForPrimary, makeReplica, endPause, handOver, lookAtReplicas, takeOver}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operating.md has the steps %q, expected %q", got, want)
	}
}

// step runs one of the steps on a server; next is the new primary.
func (w *installation) step(server *redistest.Server, step string, next *redistest.Server) any {
	w.Helper()
	if next != nil {
		host, port, err := net.SplitHostPort(next.Addr)
		kit.Check(w.T, err)
		step = strings.NewReplacer("HOST", host, "PORT", port).Replace(step)
	}
	reply, err := server.Client(w.T).Do(w.Context(), words(step)...).Result()
	if err != nil {
		w.Fatalf("%s: %v", step, err)
	}
	return reply
}

func words(command string) (all []any) {
	for _, word := range strings.Fields(command) {
		all = append(all, word)
	}
	return all
}

func (w *installation) plannedFailover() {
	primary, watchers := w.sentinels.Primary, w.sentinels.Watchers
	w.step(primary, pauseWrites, nil)
	kit.EventuallyNil(w.T, func() error { return caughtUp(w.step(primary, lookAtReplicas, nil), 2) })
	before := fmt.Sprint(w.step(watchers[0], askForPrimary, nil))
	var asked time.Time
	renamed := kit.Within(2*kit.Patience, func() bool {
		if time.Since(asked) > 10*time.Second { // one that they could not complete in time they give up for good
			asked = time.Now()
			_ = watchers[0].Client(w.T).Do(w.Context(), words(failOver)...).Err() // INPROG, or no replica is well just now
		}
		return !slices.ContainsFunc(watchers, func(s *redistest.Server) bool { return fmt.Sprint(w.step(s, askForPrimary, nil)) == before })
	})
	if !renamed {
		w.Fatalf("after %s the Sentinels still name %s", 2*kit.Patience, before)
	}
	w.step(primary, makeReplica, w.sentinels.Promoted(w.T))
	w.step(primary, endPause, nil)
}

// caughtUp returns what is missing until all replicas of a primary have all that it has, by what INFO says.
func caughtUp(info any, replicas int) error {
	_, offset, _ := strings.Cut(fmt.Sprint(info), "master_repl_offset:")
	offset, _, _ = strings.Cut(offset, "\r")
	if have := strings.Count(fmt.Sprint(info), "offset="+offset+","); have != replicas {
		return fmt.Errorf("%d replicas have all up to %s, expected %d", have, offset, replicas)
	}
	return nil
}

// bareFailover is the command that Sentinels know nothing of.
func (w *installation) bareFailover() {
	kit.Check(w.T, w.sentinels.Primary.Client(w.T).Do(w.Context(), "FAILOVER").Err())
	w.sentinels.Promoted(w.T)
}

func (w *installation) plainFailover() {
	w.step(w.plain.primary, handOver, w.plain.replica)
	kit.Eventually(w.T, "the old primary is a replica", func() bool {
		return strings.Contains(fmt.Sprint(w.step(w.plain.primary, lookAtReplicas, nil)), "role:slave")
	})
	w.plain.front.Redirect(w.plain.replica.Addr)
}

func (w *installation) clusterFailover() {
	w.step(w.copy, takeOver, nil)
	kit.Eventually(w.T, "the replica is the master", func() bool {
		return strings.Contains(fmt.Sprint(w.step(w.copy, lookAtReplicas, nil)), "role:master")
	})
}
