package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/wait"
	"notifier/test/kit"
)

// TestStoreLoss makes Redis fail over to a replica that lacks the latest writes, and restart empty, while
// three workers send, Slack misbehaves and operators set overrides. The workers restore the admissions
// they remember, so the audit is the same as without a loss: no window exceeds its limit, and no event is
// lost or charged twice.
//
// No worker dies here, unlike in TestChaos: the admissions that only a dead worker remembered could not
// be restored.
func TestStoreLoss(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	seed, duration := chosen(t, 30*time.Second)
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	d := newDeployment(t, 2*time.Second, limits{
		global: "60/5s+1000/20s", category: "12/5s+2/200ms", overrides: map[string]string{"billing": "30/20s+10/1s"},
	})
	d.startWorkers(3, true)
	d.acquainted()

	endLoad := d.load(seed, 35)
	defer endLoad()
	var running sync.WaitGroup
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	for i, lane := range [][]injector{d.againstSlack(false), d.againstReading(), d.operators()} {
		running.Go(func() { injectFaults(faults, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	injectFaults(faults, rand.New(rand.NewPCG(seed, 99)), d.againstMemory()) // may call FailNow
	running.Wait()
	endLoad()
	a := d.reconcile()
	if len(d.faults.of(faultFailover)) == 0 || len(d.faults.of(faultEmpty)) == 0 {
		t.Errorf("%s: expected a failover and an empty restart at least", d.faults.counts())
	}
	t.Logf("seed %d, %s\n%s", seed, time.Since(d.faults.begun).Round(time.Second), a.report())
}

// acquainted waits until all workers have a heartbeat and each has then written another one.
func (d *deployment) acquainted() {
	d.Helper()
	heartbeats := func() map[string]float64 {
		last := map[string]float64{}
		kit.EventuallyNil(d.T, func() error {
			all, err := d.ledger.client.ZRangeWithScores(d.Context(), key("alive"), 0, -1).Result()
			for _, heartbeat := range all {
				last[fmt.Sprint(heartbeat.Member)] = heartbeat.Score
			}
			return err
		})
		return last
	}
	kit.Eventually(d.T, "all have a heartbeat", func() bool { return len(heartbeats()) >= len(d.workers) })
	before := heartbeats()
	kit.Eventually(d.T, "each has a later heartbeat", func() bool {
		now := heartbeats()
		for name := range before {
			if now[name] == before[name] {
				return false
			}
		}
		return true
	})
}

// againstMemory makes Redis lose data: everything, or the writes that a replica had not received.
func (d *deployment) againstMemory() []injector {
	return []injector{
		{1, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			d.redis.Stop(d.T)
			d.redis.Empty(d.T)
			wait.For(ctx, between(random, 100*time.Millisecond, time.Second))
			d.faults.note(faultRedis, "", begun) // as in againstServers
			d.redis.Restart(d.T)
			d.faults.note(faultEmpty, "", begun)
			d.healed(ctx, random)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			next := d.redis.StartReplica(d.T)
			next.Part(d.T)
			// the failover loses the admissions made from here on
			wait.For(ctx, between(random, 200*time.Millisecond, 1500*time.Millisecond))
			stopped := time.Now()
			d.redis.Stop(d.T)
			d.faults.note(faultRedis, "", stopped)
			next.Replace(d.T, d.redis)
			d.redis = next
			d.faults.note(faultFailover, "", begun)
			d.healed(ctx, random)
		}},
	}
}

// healed waits, half of the time, until the workers have restored the lost admissions. Otherwise the next
// loss may come during the restoring. It always waits after a series of losses during which the ledger was
// not readable: the audit allows mostUnseen.
func (d *deployment) healed(ctx context.Context, random *rand.Rand) {
	if random.IntN(2) == 0 && d.ledger.unseenFor() < d.ledger.mostUnseen()/2 {
		return
	}
	looks := d.ledger.counted()
	for wait.For(ctx, lookEvery) && d.ledger.counted() < looks+2 {
	}
}
