package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/devstack"
	"notifier/internal/wait"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// cluster is a large installation: three NATS servers that replicate everything, and a Redis with two
// replicas under Sentinels. All are processes.
type cluster struct {
	d         *deployment
	nodes     []*natsNode
	sentinels *redistest.Sentinels

	mu     sync.Mutex
	stalls []stall
}

// newCluster starts the servers. min-replicas-to-write is not set, because workers restore the admissions
// that a failover loses.
func newCluster(t *testing.T, ackWait time.Duration, limits limits) *cluster {
	t.Helper()
	d := &deployment{T: t, ackWait: ackWait, limits: limits, faults: &faultLog{begun: time.Now()}, kept: keptFolder(t)}
	c := &cluster{d: d, sentinels: redistest.StartSentinels(t, 2)}
	c.sentinels.Settle(t)
	c.nodes = startNATSCluster(t, d.kept)
	d.urls = map[string]string{"NATS_URL": urlOf(c.nodes), "REDIS_URL": c.sentinels.URL()}
	var watchers []string
	for _, watcher := range c.sentinels.Watchers {
		watchers = append(watchers, watcher.Addr)
	}
	d.equip(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: watchers, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second,
	}))
	return c
}

// TestCluster kills leaders under load: the NATS leaders of the stream, its consumer and the cluster, the
// primary of Redis, and workers. The audit is the same as in TestChaos: no event is lost or charged
// twice, and no window exceeds its limit. The test prints how long a leader was missing, and how much
// longer the workers were idle.
//
// No worker dies during a Redis failover, because admissions that only the dead worker remembers would be
// lost. test/survival measures that case.
func TestCluster(t *testing.T) {
	// not parallel: its dozen processes need all the cores
	kit.Long(t)
	seed, duration := chosen(t, 20*time.Second) // or longer, until each leader was killed once
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	// The longest window must outlast a failover on a busy machine: the ledger cannot be read meanwhile.
	c := newCluster(t, 5*time.Second, limits{
		global: "60/5s+5000/2m", category: "12/5s+2/200ms", overrides: map[string]string{"billing": "180/2m+10/1s"},
	})
	d := c.d
	// Slow posts, so that workers die with posts in flight.
	d.treatPosts(devstack.Always(devstack.Response{Delay: 300 * time.Millisecond}))
	d.startWorkers(4, false)
	d.acquainted()
	kit.EventuallyNil(t, func() error { return c.replicated(t.Context()) })

	endLoad := d.load(seed, 80)
	defer endLoad()
	var running sync.WaitGroup
	defer running.Wait() // also if the test fails early
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	running.Go(func() { c.againstLeaders(faults, rand.New(rand.NewPCG(seed, 1))) })
	c.againstRedisAndWorkers(faults, rand.New(rand.NewPCG(seed, 2))) // may call FailNow
	running.Wait()
	endLoad()
	d.treatPosts(nil)
	kit.EventuallyNil(t, c.forget)
	d.rest()
	for range 1 + int(duration/time.Minute) {
		d.faults.complain(c.killIdle(t.Context()))
	}
	kit.EventuallyNil(t, c.forget)
	a := d.reconcile()
	t.Logf("seed %d, %s\n%s\n%s", seed, time.Since(d.faults.begun).Round(time.Second), a.report(), c.judgeStalls(a))
	d.everything(append(leaders, faultKill)...)
}

// everything fails the test if one of these kinds of faults never happened.
func (d *deployment) everything(kinds ...string) {
	d.Helper()
	var missing []string
	for _, kind := range kinds {
		if len(d.faults.of(kind)) == 0 {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		d.Errorf("%s: there was no %s", d.faults.counts(), strings.Join(missing, ", no "))
	}
}

// againstLeaders kills each kind of NATS leader once, then random ones until ctx ends. It waits until a
// killed server has caught up before it kills the next, so a majority is always up.
func (c *cluster) againstLeaders(ctx context.Context, random *rand.Rand) {
	kinds := []string{leadsStream, leadsConsumer, leadsCluster}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	whole := context.WithoutCancel(ctx)
	for i := 0; i < len(kinds) || ctx.Err() == nil; i++ {
		wait.For(whole, between(random, 500*time.Millisecond, 1500*time.Millisecond))
		kind := kinds[i%len(kinds)]
		if i >= len(kinds) {
			kind = kinds[random.IntN(len(kinds))]
		}
		if err := c.killLeader(whole, kind, between(random, 100*time.Millisecond, 2*time.Second), func() error { return nil }); err != nil {
			c.d.faults.complain(fmt.Errorf("%s: %w", kind, err))
			return
		}
	}
}

// killLeader kills a leader, waits for the election of a new one, calls then, and restarts the server
// after pause.
func (c *cluster) killLeader(ctx context.Context, kind string, pause time.Duration, then func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*kit.Patience)
	defer cancel()
	var leader *natsNode
	err := errAgain(ctx, func() (err error) {
		leader, err = c.leader(ctx, kind)
		return err
	})
	if err != nil {
		return err
	}
	var others []*natsNode
	for _, n := range c.nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	begun := time.Now()
	if err := leader.kill(); err != nil {
		return err
	}
	took, there := c.probe(ctx, others, begun)
	if !there {
		return fmt.Errorf("%s after %s was killed there is no new leader", time.Since(begun), leader.name)
	}
	c.note(stall{kind: kind, killed: begun, itself: took})
	if err := then(); err != nil {
		return err
	}
	wait.For(ctx, pause)
	if err := leader.start(); err != nil {
		return err
	}
	err = errAgain(ctx, func() error { return c.replicated(ctx) })
	c.d.faults.note(kind, leader.name, begun)
	return err
}

// killIdle kills the leader of the idle consumer, and publishes one event once a new one is elected. The
// workers' pull requests died with the old leader, and no message tells them.
func (c *cluster) killIdle(ctx context.Context) error {
	e := &event{id: fmt.Sprintf("idle-%d", len(c.stalls)), category: "idle", cost: 1}
	return c.killLeader(ctx, leadsIdle, 0, func() error { return c.d.publisher.publish(ctx, e, true) })
}

// errAgain repeats attempt until it succeeds. If ctx ends, it returns the last error.
func errAgain(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if err == nil || !wait.For(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// againstRedisAndWorkers kills a worker, kills the primary of Redis, kills a worker, and requests a
// failover, in turn until ctx ends, each at least once. They never overlap; see TestCluster.
func (c *cluster) againstRedisAndWorkers(ctx context.Context, random *rand.Rand) {
	d, whole := c.d, context.WithoutCancel(ctx)
	worker := d.againstWorkers()[0].inject // kills a worker and starts it again
	turns := []func(){
		func() { worker(whole, random) },
		func() { c.killPrimary(whole, random) },
		func() { worker(whole, random) },
		func() { c.failOver(whole) },
	}
	for i := 0; i < len(turns) || ctx.Err() == nil; i++ {
		wait.For(whole, between(random, time.Second, 4*time.Second))
		turns[i%len(turns)]()
		if i%2 == 1 {
			d.seen(2)
			continue
		}
		for _, k := range d.workers {
			kit.EventuallyNil(d.T, func() error { return k.now().Ready() })
		}
		c.sentinels.Current(d.T) // all servers have the dead worker's admissions
	}
}

// killPrimary kills the primary of Redis, and restarts it after a replica was promoted.
func (c *cluster) killPrimary(ctx context.Context, random *rand.Rand) {
	primary := c.sentinels.Current(c.d.T)
	begun := time.Now()
	primary.Stop(c.d.T)
	c.sentinels.Replaced(c.d.T, primary)
	c.note(stall{kind: faultPrimary, killed: begun, itself: time.Since(begun)})
	wait.For(ctx, between(random, 100*time.Millisecond, time.Second))
	primary.Restart(c.d.T)
	c.d.faults.note(faultPrimary, primary.Addr, begun)
	c.d.faults.note(faultFailover, "kill -9", begun) // the audit treats both alike
}

// askedForFailover marks a failover on request, without a crash.
const askedForFailover = "SENTINEL FAILOVER"

// failOver requests a failover from the Sentinels. The old primary keeps serving until it is replaced.
func (c *cluster) failOver(context.Context) {
	primary := c.sentinels.Current(c.d.T)
	begun := time.Now()
	c.sentinels.Failover(c.d.T)
	c.sentinels.Replaced(c.d.T, primary)
	c.note(stall{kind: faultFailover, killed: begun, itself: time.Since(begun)})
	c.d.faults.note(faultFailover, askedForFailover, begun)
}

// seen waits for more looks at the ledger. Looks only count once the workers have restored the admissions
// that a failover lost.
func (d *deployment) seen(more int) {
	d.Helper()
	looks := d.ledger.counted()
	kit.Eventually(d.T, "Redis is healed", func() bool { return d.ledger.counted() >= looks+more })
}
