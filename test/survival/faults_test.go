package survival

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/wait"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func (in *installation) onOne(extra []string) (url string) {
	in.single = redistest.StartProcess(in.T, extra...)
	return in.single.URL()
}

func (in *installation) underSentinels(extra []string) (url string) {
	in.sentinels = redistest.StartSentinels(in.T, 2, extra...)
	// Sentinels repeat an election without a winner after twice this time.
	in.configure("SENTINEL", "SET", "main", "failover-timeout", 4000)
	return in.sentinels.URL()
}

func (in *installation) onOneWithALateReplica(extra []string) (url string) {
	url = in.onOne(extra)
	in.late = redistest.StartProxy(in.T, in.single.Addr)
	return url
}

// configure runs a command on each Sentinel.
func (in *installation) configure(command ...any) {
	in.Helper()
	for _, watcher := range in.sentinels.Watchers {
		kit.Check(in.T, watcher.Client(in.T).Do(in.Context(), command...).Err())
	}
}

func (in *installation) replicated(extra []string) (url string) {
	primary := redistest.StartProcess(in.T, extra...)
	in.plain = &pair{primary: primary, replica: primary.StartReplica(in.T), front: redistest.StartProxy(in.T, primary.Addr)}
	return "redis://" + in.plain.front.Addr + "/0"
}

func (in *installation) inCluster(extra []string) (url string) {
	in.cluster = redistest.StartCluster(in.T, 1, extra...)
	in.copy = in.cluster.AddReplica(in.T, in.cluster.Nodes[0])
	return in.cluster.URL()
}

// killPrimary kills the primary 2.5 s after its replicas received their last write.
func (in *installation) killPrimary() {
	in.sentinels.Front.CutReplication()
	wait.For(in.Context(), 2500*time.Millisecond)
	in.sentinels.Primary.Stop(in.T)
	in.sentinels.Promoted(in.T)
}

// killBoth is killPrimary, and one worker of each group dies at the same moment.
func (in *installation) killBoth() {
	in.sentinels.Front.CutReplication()
	wait.For(in.Context(), 2500*time.Millisecond)
	in.sentinels.Primary.Stop(in.T)
	for _, f := range in.groups {
		f.replicas[0].kill()
		<-f.replicas[0].ended
		f.missing = len(f.replicas[0].admissions)
	}
	in.sentinels.Promoted(in.T)
}

// restartEmpty kills and restarts a server that writes nothing to disk.
func (in *installation) restartEmpty() {
	in.single.Stop(in.T)
	wait.For(in.Context(), 300*time.Millisecond)
	in.single.Restart(in.T)
}

func (in *installation) flush() { kit.Check(in.T, in.single.Client(in.T).FlushAll(in.Context()).Err()) }

// flushTwice empties the store twice within one quarantine. By the second flush the workers know the store's
// new token and have begun to restore, and all of that is lost.
func (in *installation) flushTwice() {
	in.flush()
	wait.For(in.Context(), 700*time.Millisecond)
	in.flush()
}

// flushWithoutOne cuts one worker of each group off from Redis until the others have used the slots that it
// could not restore. When it returns, it has to find them taken.
func (in *installation) flushWithoutOne() {
	in.late.Cut()
	for _, f := range in.groups {
		r := f.replicas[0]
		r.mu.Lock()
		f.missing = len(r.admissions) + batchSize // plus a batch in flight
		r.mu.Unlock()
	}
	in.flush()
	wait.For(in.Context(), 4*time.Second)
	in.late.Heal()
}

// The steps of planned failovers in docs/operating.md. HOST and PORT stand for the new primary.
const (
	pauseWrites    = "client pause 60000 write"
	lookAtReplicas = "info replication"
	failOver       = "sentinel failover main" // again after 10 s if the Sentinels gave up
	askForPrimary  = "sentinel get-master-addr-by-name main"
	makeReplica    = "replicaof HOST PORT"
	endPause       = "client unpause"
	handOver       = "failover to HOST PORT timeout 10000"
	takeOver       = "cluster failover"
)

// docs/operating.md has exactly the steps that are played here.
func TestPlannedFailoversAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/operating.md")
	kit.Check(t, err)
	_, section, _ := strings.Cut(string(document), "\n### Planned failover\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for line := range strings.Lines(section) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "redis-cli" {
			got = append(got, strings.Join(words[2:], " ")) // without redis-cli and the server
		}
	}
	want := []string{pauseWrites, lookAtReplicas, failOver, askForPrimary, makeReplica, endPause, handOver, lookAtReplicas, takeOver}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operating.md has the steps %q, expected %q", got, want)
	}
}

// step runs a step on a server. Unless next is nil, its address replaces HOST and PORT.
func (in *installation) step(server *redistest.Server, step string, next *redistest.Server) any {
	in.Helper()
	if next != nil {
		host, port, err := net.SplitHostPort(next.Addr)
		kit.Check(in.T, err)
		step = strings.NewReplacer("HOST", host, "PORT", port).Replace(step)
	}
	reply, err := server.Client(in.T).Do(in.Context(), words(step)...).Result()
	if err != nil {
		in.Fatalf("%s: %v", step, err)
	}
	return reply
}

func words(command string) (all []any) {
	for _, word := range strings.Fields(command) {
		all = append(all, word)
	}
	return all
}

func (in *installation) plannedFailover() {
	primary, watchers := in.sentinels.Primary, in.sentinels.Watchers
	in.step(primary, pauseWrites, nil)
	kit.EventuallyNil(in.T, func() error { return caughtUp(in.step(primary, lookAtReplicas, nil), 2) })
	before := fmt.Sprint(in.step(watchers[0], askForPrimary, nil))
	var asked time.Time
	renamed := kit.Within(2*kit.Patience, func() bool {
		if time.Since(asked) > 10*time.Second { // Sentinels abandon a failover that takes too long
			asked = time.Now()
			// fails with INPROG, or while no replica is suitable
			_ = watchers[0].Client(in.T).Do(in.Context(), words(failOver)...).Err()
		}
		return !slices.ContainsFunc(watchers, func(s *redistest.Server) bool { return fmt.Sprint(in.step(s, askForPrimary, nil)) == before })
	})
	if !renamed {
		in.Fatalf("after %s the Sentinels still name %s", 2*kit.Patience, before)
	}
	in.step(primary, makeReplica, in.sentinels.Promoted(in.T))
	in.step(primary, endPause, nil)
}

// caughtUp returns an error unless INFO shows this many replicas with all writes of the primary.
func caughtUp(info any, replicas int) error {
	_, offset, _ := strings.Cut(fmt.Sprint(info), "master_repl_offset:")
	offset, _, _ = strings.Cut(offset, "\r")
	if have := strings.Count(fmt.Sprint(info), "offset="+offset+","); have != replicas {
		return fmt.Errorf("%d replicas have all up to %s, expected %d", have, offset, replicas)
	}
	return nil
}

func (in *installation) plainFailover() {
	in.step(in.plain.primary, handOver, in.plain.replica)
	kit.Eventually(in.T, "the old primary is a replica", func() bool {
		return strings.Contains(fmt.Sprint(in.step(in.plain.primary, lookAtReplicas, nil)), "role:slave")
	})
	in.plain.front.Redirect(in.plain.replica.Addr)
}

func (in *installation) clusterFailover() {
	in.step(in.copy, takeOver, nil)
	kit.Eventually(in.T, "the replica is the master", func() bool {
		return strings.Contains(fmt.Sprint(in.step(in.copy, lookAtReplicas, nil)), "role:master")
	})
}
