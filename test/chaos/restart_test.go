package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestCleanRestartsUnderLoad stops and starts workers that have their hands full, as a rolling upgrade does: each ends with
// exit code 0, nothing is lost, and nothing is posted twice or in doubt. What a worker had not begun is handed back, so a
// restart may cost redeliveries, of as much as it held.
func TestCleanRestartsUnderLoad(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	w := newWorld(t, 20*time.Second, limits{global: "100000/1m", category: "100000/1m"})
	w.startWorkers(2, false)
	w.slack.Always(devstack.Behaviour{Delay: 150 * time.Millisecond}) // less than comes in, so that hands are full
	publishing, endPublishing := context.WithCancel(t.Context())
	defer endPublishing()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		w.publisher.run(publishing, rand.New(rand.NewPCG(1, 1)), 200, []string{"alpha", "beta"})
	})
	restarts := 0
	for range 3 {
		for _, k := range w.workers {
			before := w.slack.Requests()
			kit.Eventually(t, "posts go on", func() bool { return w.slack.Requests() > before+20 })
			kit.Check(t, k.now().terminate())
			restarts++
			_, err := k.start()
			kit.Check(t, err)
		}
	}
	endPublishing()
	publisher.Wait()
	w.slack.Always(devstack.Behaviour{})
	a := w.conclude()
	if a.duplicates > 0 {
		t.Errorf("%d events were posted more than once, expected none", a.duplicates)
	}
	for _, l := range a.settled {
		if l.Ambiguous {
			t.Errorf("in doubt after clean restarts: %s", l)
		}
	}
	t.Logf("%d clean restarts under load: %d events, %d redelivered, %.1f for each restart", restarts, len(a.events), a.redelivered, float64(a.redelivered)/float64(restarts))
}
