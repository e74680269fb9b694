package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"notifier/test/kit"
)

// settling is the part of a run's time that is left for coming to rest.
const settling = 10 * time.Second

// TestChaos lets three workers send while everything breaks, and makes the account. Events are more than the limits let
// through, so that all outcomes occur.
func TestChaos(t *testing.T) {
	t.Parallel() // most of it is waiting, and the scenarios of the other tests fit into it
	seed, duration := chosen(t, 2*settling)
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	w := newWorld(t, 2*time.Second, limits{
		global: "60/5s+1000/20s", category: "12/5s+2/200ms", overrides: map[string]string{"audit": "30/20s+10/1s"},
	})
	switch os.Getenv("NOTIFIER_CHAOS_HISTORY") { // to compare; else the channel is readable now and then
	case "always":
		w.shown = true
	case "never":
		w.hideChannel()
	}
	w.startWorkers(3, true)
	t.Cleanup(w.thawAll)

	publishing, endPublishing := context.WithCancel(t.Context())
	defer endPublishing()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		categories := []string{"alpha", "alpha", "alpha", "beta", "beta", "gamma", "delta", "audit", "audit"}
		w.publisher.run(publishing, rand.New(rand.NewPCG(seed, 1000)), 35, categories)
	})
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	w.unleash(faults, seed, duration >= 3*time.Minute)
	endPublishing()
	publisher.Wait()
	a := w.conclude()
	t.Logf("seed %d, %s\n%s", seed, time.Since(w.diary.begun).Round(time.Second), a.report())
}

// chosen reads the seed and the duration from the environment. Without them the seed is random and the duration the shortest
// that says something.
func chosen(t *testing.T, shortest time.Duration) (seed uint64, duration time.Duration) {
	t.Helper()
	seed, duration = rand.Uint64N(1_000_000), shortest
	var err error
	if text := os.Getenv("NOTIFIER_CHAOS_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		kit.Check(t, err)
	}
	if text := os.Getenv("NOTIFIER_CHAOS_TIME"); text != "" {
		duration, err = time.ParseDuration(text)
		kit.Check(t, err)
	}
	return seed, max(duration, shortest)
}
