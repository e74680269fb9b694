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

// cluster is what a large installation has: three NATS servers with three copies of everything, and a Redis
// with two replicas under three Sentinels. All are processes.
type cluster struct {
	d         *deployment
	nodes     []*natsNode
	sentinels *redistest.Sentinels

	mu     sync.Mutex
	stalls []stall
}

// newCluster starts all of it. min-replicas-to-write is not set: workers put back what a failover forgets.
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

// TestCluster kills the leaders of a cluster under load: of the stream, of its consumer and of NATS itself,
// the primary of Redis, and workers. It makes the audit of TestChaos: no event is lost, none is charged
// twice, no window is above its limit. How long workers stand still is measured beside how long NATS itself
// does, and printed.
//
// No worker dies while Redis fails over: what it alone remembers would be forgotten. test/survival measures
// that.
func TestCluster(t *testing.T) {
	// not parallel: its dozen processes need the processors for themselves
	kit.Long(t)
	seed, duration := chosen(t, 20*time.Second) // or until each leader was killed once
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	// The longest window outlasts a failover on a busy machine, during which nobody looks at the ledger.
	c := newCluster(t, 5*time.Second, limits{
		global: "60/5s+5000/2m", category: "12/5s+2/200ms", overrides: map[string]string{"billing": "180/2m+10/1s"},
	})
	d := c.d
	// Workers then die with posts under way.
	d.treatPosts(devstack.Always(devstack.Response{Delay: 300 * time.Millisecond}))
	d.startWorkers(4, false)
	d.acquainted()
	kit.EventuallyNil(t, func() error { return c.replicated(t.Context()) })

	endLoad := d.load(seed, 80)
	defer endLoad()
	var running sync.WaitGroup
	defer running.Wait() // also where something below ends the test
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	running.Go(func() { c.againstLeaders(faults, rand.New(rand.NewPCG(seed, 1))) })
	c.againstRedisAndWorkers(faults, rand.New(rand.NewPCG(seed, 2))) // here, because it may end the test
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

// everything fails the test where one of the kinds of faults never happened.
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

// againstLeaders kills each leader of NATS once, and then any, until ctx ends. There is always a majority:
// the next one is killed when the last one has caught up.
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
			c.d.faults.complain(fmt.Errorf("%s: %d", kind, err))
			return
		}
	}
}

// killLeader kills a leader, waits until there is another one, calls then, and starts the server again after
// a pause.
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

// killIdle kills the leader of the consumer while there is nothing to do, and publishes one event as soon as
// there is another one. What workers had asked the dead leader for is forgotten, and nobody reports that to
// them.
func (c *cluster) killIdle(ctx context.Context) error {
	e := &event{id: fmt.Sprintf("idle-%d", len(c.stalls)), category: "idle", cost: 1}
	return c.killLeader(ctx, leadsIdle, 0, func() error { return c.d.publisher.publish(ctx, e, true) })
}

// errAgain tries until there is no error, or until ctx ends: then it is the last one.
func errAgain(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if err == nil || !wait.For(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// againstRedisAndWorkers kills a worker, kills the primary of Redis, kills a worker, and asks for a failover,
// in turns until ctx ends, and each once. One after the other: see TestCluster.
func (c *cluster) againstRedisAndWorkers(ctx context.Context, random *rand.Rand) {
	d, whole := c.d, context.WithoutCancel(ctx)
	worker := d.againstWorkers()[0].inject // kill, and start again
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
		c.sentinels.Current(d.T) // what the dead one was given is on all servers
	}
}

// killPrimary kills the primary of Redis, and starts it again when another one has taken over.
func (c *cluster) killPrimary(ctx context.Context, random *rand.Rand) {
	primary := c.sentinels.Current(c.d.T)
	begun := time.Now()
	primary.Stop(c.d.T)
	c.sentinels.Replaced(c.d.T, primary)
	c.note(stall{kind: faultPrimary, killed: begun, itself: time.Since(begun)})
	wait.For(ctx, between(random, 100*time.Millisecond, time.Second))
	primary.Restart(c.d.T)
	c.d.faults.note(faultPrimary, primary.Addr, begun)
	c.d.faults.note(faultFailover, "kill -9", begun) // for the audit they are the same
}

// askedForFailover names a failover that Sentinels were asked for.
const askedForFailover = "SENTINEL FAILOVER"

// failOver asks the Sentinels for another primary. The one that there is goes on until it is replaced.
func (c *cluster) failOver(context.Context) {
	primary := c.sentinels.Current(c.d.T)
	begun := time.Now()
	c.sentinels.Failover(c.d.T)
	c.sentinels.Replaced(c.d.T, primary)
	c.note(stall{kind: faultFailover, killed: begun, itself: time.Since(begun)})
	c.d.faults.note(faultFailover, askedForFailover, begun)
}

// seen waits until the ledger was looked at so many times more: until workers have put back what a failover
// has forgotten.
func (d *deployment) seen(more int) {
	d.Helper()
	looks := d.ledger.counted()
	kit.Eventually(d.T, "Redis is healed", func() bool { return d.ledger.counted() >= looks+more })
}
