package survival

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// The installations.

func (w *world) onOne(extra []string) (url string) {
	w.single = redistest.StartProcess(w.T, extra...)
	return w.single.URL()
}

func (w *world) underSentinels(extra []string) (url string) {
	w.sentinels = redistest.StartSentinels(w.T, 2, extra...)
	w.tell("SENTINEL", "SET", "main", "failover-timeout", 4000) // an election that nobody wins is repeated after twice this time
	return w.sentinels.URL()
}

// underSlowSentinels has Sentinels that look as seldom as they do by themselves.
func (w *world) underSlowSentinels(extra []string) (url string) {
	url = w.underSentinels(extra)
	w.tell("SENTINEL", "SET", "main", "down-after-milliseconds", 30_000, "failover-timeout", 60_000)
	w.tell("SENTINEL", "DEBUG", "PING-PERIOD", 1000, "INFO-PERIOD", 10_000, "PUBLISH-PERIOD", 2000)
	return url
}

// tell gives a command to each Sentinel.
func (w *world) tell(command ...any) {
	for _, watcher := range w.sentinels.Watchers {
		testkit.Check(w.T, watcher.Client(w.T).Do(w.Context(), command...).Err())
	}
}

func (w *world) replicated(extra []string) (url string) {
	primary := redistest.StartProcess(w.T, extra...)
	w.plain = &plain{primary: primary, replica: primary.StartReplica(w.T), front: redistest.StartProxy(w.T, primary.Addr)}
	return "redis://" + w.plain.front.Addr + "/0"
}

func (w *world) inCluster(extra []string) (url string) {
	w.cluster = redistest.StartCluster(w.T, 1, extra...)
	w.copy = w.cluster.AddReplica(w.T, w.cluster.Nodes[0])
	return w.cluster.URL()
}

// What happens to them.

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
	testkit.EventuallyNil(w.T, func() error { return caughtUp(w.Context(), primary, 2) })
	w.sentinels.Failover(w.T)
	promoted := w.sentinels.Promoted(w.T)
	host, port, err := net.SplitHostPort(promoted.Addr)
	testkit.Check(w.T, err)
	testkit.Check(w.T, primary.Do(w.Context(), "REPLICAOF", host, port).Err())
	testkit.Check(w.T, primary.Do(w.Context(), "CLIENT", "UNPAUSE").Err())
}

// caughtUp returns what is missing until all replicas of a primary have all that it has.
func caughtUp(ctx context.Context, primary *redis.Client, replicas int) error {
	info, err := primary.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	_, offset, _ := strings.Cut(info, "master_repl_offset:")
	offset, _, _ = strings.Cut(offset, "\r")
	if have := strings.Count(info, "offset="+offset+","); have != replicas {
		return fmt.Errorf("%d replicas have all up to %s, expected %d", have, offset, replicas)
	}
	return nil
}

// bareFailover is the command that Sentinels know nothing of.
func (w *world) bareFailover() {
	testkit.Check(w.T, w.sentinels.Primary.Client(w.T).Do(w.Context(), "FAILOVER").Err())
	w.sentinels.Promoted(w.T)
}

// plainFailover is what docs/operations.md describes for a primary and a replica that nobody watches.
func (w *world) plainFailover() {
	host, port, err := net.SplitHostPort(w.plain.replica.Addr)
	testkit.Check(w.T, err)
	primary := w.plain.primary.Client(w.T)
	testkit.Check(w.T, primary.Do(w.Context(), "FAILOVER", "TO", host, port, "TIMEOUT", 10_000).Err())
	testkit.EventuallyNil(w.T, func() error {
		info, err := primary.Info(w.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "role:slave") {
			err = fmt.Errorf("expected role:slave: %s", info)
		}
		return err
	})
	w.plain.front.Redirect(w.plain.replica.Addr)
}

// clusterFailover is what docs/operations.md describes for a Cluster.
func (w *world) clusterFailover() { w.cluster.Promote(w.T, w.copy) }
