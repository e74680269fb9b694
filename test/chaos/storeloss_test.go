package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/consume/wait"
	"notifier/test/kit"
)

// TestStoreLoss lets Redis fail over to a replica that has not received everything, and come back empty, while three workers send,
// NATS and Slack misbehave and nobody dies. Workers put back what they remember, so the account is the same as without that: no
// window is above its limit, and nothing is lost or charged twice.
//
// In TestChaos workers die, and what they alone remember dies with them: nobody could put it back.
func TestStoreLoss(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	seed, duration := chosen(t, 30*time.Second)
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	w := newWorld(t, 2*time.Second, limits{
		global: "60/5s+1000/20s", category: "12/5s+2/200ms", overrides: map[string]string{"audit": "30/20s+10/1s"},
	})
	w.startWorkers(3, true)
	w.acquainted()

	publishing, endPublishing := context.WithCancel(t.Context())
	defer endPublishing()
	var running sync.WaitGroup
	running.Go(func() {
		categories := []string{"alpha", "alpha", "alpha", "beta", "beta", "gamma", "delta", "audit", "audit"}
		w.publisher.run(publishing, rand.New(rand.NewPCG(seed, 1000)), 35, categories)
	})
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	for i, lane := range [][]nemesis{w.againstSlack(false), w.againstReading(), w.steers()} {
		running.Go(func() { rampage(faults, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	rampage(faults, rand.New(rand.NewPCG(seed, 99)), w.againstMemory()) // here, because it may end the test
	endPublishing()
	running.Wait()
	a := w.conclude()
	if len(w.diary.of(faultFailover)) == 0 || len(w.diary.of(faultEmpty)) == 0 {
		t.Errorf("%s: expected a failover and an empty restart at least", w.diary.counts())
	}
	t.Logf("seed %d, %s\n%s", seed, time.Since(w.diary.begun).Round(time.Second), a.report())
}

// acquainted waits until the workers know each other: each has seen the heartbeats of all. Whoever has only just started is not
// waited for.
func (w *world) acquainted() {
	w.Helper()
	heartbeats := func() (all map[string]string) {
		kit.EventuallyNil(w.T, func() (err error) {
			all, err = w.register.client.HGetAll(w.Context(), key("replicas")).Result()
			return err
		})
		return all
	}
	kit.Eventually(w.T, "all have a heartbeat", func() bool { return len(heartbeats()) == len(w.workers) })
	before := heartbeats()
	kit.Eventually(w.T, "each has a later heartbeat", func() bool {
		now := heartbeats()
		for name := range before {
			if now[name] == before[name] {
				return false
			}
		}
		return true
	})
}

// againstMemory makes Redis forget.
func (w *world) againstMemory() []nemesis {
	return []nemesis{
		{1, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			w.redis.Stop(w.T)
			w.redis.Empty(w.T)
			wait.For(ctx, between(random, 100*time.Millisecond, time.Second))
			w.diary.note(faultRedis, "", begun) // as in againstServers
			w.redis.Restart(w.T)
			w.diary.note(faultEmpty, "", begun)
			w.healed(ctx, random)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			next := w.redis.StartReplica(w.T)
			next.Part(w.T)
			wait.For(ctx, between(random, 200*time.Millisecond, 1500*time.Millisecond)) // what is admitted now is forgotten
			stopped := time.Now()
			w.redis.Stop(w.T)
			w.diary.note(faultRedis, "", stopped)
			next.Replace(w.T, w.redis)
			w.redis = next
			w.diary.note(faultFailover, "", begun)
			w.healed(ctx, random)
		}},
	}
}

// healed waits until the workers have put back what Redis has forgotten, half of the time: else that is forgotten, too.
func (w *world) healed(ctx context.Context, random *rand.Rand) {
	if random.IntN(2) == 0 {
		return
	}
	looks := w.register.counted()
	for wait.For(ctx, lookEvery) && w.register.counted() < looks+2 {
	}
}
