package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"notifier/internal/consume/wait"
	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestOutagesRedeliverNothing holds events for far longer than the server waits for an acknowledgement, with Slack unavailable
// and then Redis, and nobody dies: they stay with the worker that holds them. All other promises would be kept if they did not,
// since the script knows them again, but each would go through all workers' hands again and again.
func TestOutagesRedeliverNothing(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	w := newWorld(t, 2*time.Second, limits{global: "100/30s", category: "5/30s"})
	w.startWorkers(2, false)
	w.slack.Always(devstack.Behaviour{Status: http.StatusInternalServerError})
	for i := range 20 {
		category := fmt.Sprintf("category-%d", i%4)
		kit.Check(t, w.publisher.publish(t.Context(), &event{id: fmt.Sprintf("plain-%02d", i), category: category, cost: 1}, true))
	}
	wait.For(t.Context(), 2*w.ackWait)
	w.redis.Stop(t)
	w.slack.Always(devstack.Behaviour{})
	wait.For(t.Context(), w.ackWait)
	w.redis.Restart(t)
	a := w.conclude()
	if a.sent != 20 || a.redelivered > 2 { // a worker that the machine does not let run for seconds may lose a few
		t.Errorf("%d of 20 are sent, %d were redelivered; expected none", a.sent, a.redelivered)
	}
}

// TestBrownOutKillsNothing fails three of five posts for a minute, and no worker dies: so events fail far more often in a
// row than in TestChaos, where a worker that dies takes the count along.
func TestBrownOutKillsNothing(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	const often = 6 // an event that does not fail more often than any rule would forgive proves nothing
	w := newWorld(t, 5*time.Second, limits{global: "1000/3m", category: "1000/3m"})
	w.startWorkers(2, false)
	seed, length := chosen(t, time.Minute)
	t.Logf("NOTIFIER_CHAOS_SEED=%d", seed)
	publishing, endPublishing := context.WithCancel(t.Context())
	defer endPublishing()
	var publisher sync.WaitGroup
	publisher.Go(func() {
		w.publisher.run(publishing, rand.New(rand.NewPCG(seed, 1000)), 4, []string{"alpha", "beta", "audit"})
	})
	w.brownOut(t.Context(), length)
	endPublishing()
	publisher.Wait()
	a := w.conclude()
	if !slices.ContainsFunc(a.settled, func(l *line) bool { return l.Attempts >= often }) {
		t.Errorf("no event was tried %d times: the brown-out was too mild", often)
	}
	t.Logf("seed %d\n%s", seed, a.report())
}
