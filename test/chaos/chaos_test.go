package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"notifier/test/kit"
)

// settling is the time at the end of a run, without new faults, in which the system comes to rest.
const settling = 10 * time.Second

// TestChaos runs three workers while everything around them breaks, and audits every event. The load
// exceeds the limits, so that all outcomes occur.
func TestChaos(t *testing.T) {
	t.Parallel() // it mostly waits, so the scenarios of other tests can run meanwhile
	seed, duration := chosen(t, 2*settling)
	t.Logf("NOTIFIER_CHAOS_SEED=%d NOTIFIER_CHAOS_TIME=%s", seed, duration)
	d := newDeployment(t, 2*time.Second, limits{
		global: "60/5s+1000/20s", category: "12/5s+2/200ms", overrides: map[string]string{"billing": "30/20s+10/1s"},
	})
	switch os.Getenv("NOTIFIER_CHAOS_HISTORY") { // for comparison; by default it alternates
	case "always":
		d.shown = true
	case "never":
		d.hideChannel()
	}
	d.startWorkers(3, true)
	t.Cleanup(d.thawAll)

	endLoad := d.load(seed, 35)
	defer endLoad()
	faults, endFaults := context.WithTimeout(t.Context(), duration-settling)
	defer endFaults()
	d.injectAll(faults, seed, duration >= 3*time.Minute)
	endLoad()
	a := d.reconcile()
	t.Logf("seed %d, %s\n%s", seed, time.Since(d.faults.begun).Round(time.Second), a.report())
}

// chosen reads the seed and the duration from the environment. By default the seed is random.
// The duration defaults to shortest and is never below it, because a shorter run says little.
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
