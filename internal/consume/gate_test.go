package consume

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// enterNow enters without waiting; ok is whether the gate let it.
func enterNow(g *gate) (p *pass, ok bool) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := g.enter(ctx)
	return p, err == nil
}

func mustEnter(t *testing.T, g *gate) *pass {
	t.Helper()
	p, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnOpenGateLetsEverybodyThrough(t *testing.T) {
	g := newGate()
	for range 3 {
		mustEnter(t, g)
	}
	if g.closed() {
		t.Error("closed without a failure")
	}
}

func TestAFailureClosesTheGateUntilAProbePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		wait := mustEnter(t, g).failed(0)
		if wait < firstBackoff*7/10 || wait > firstBackoff*13/10 {
			t.Errorf("closed for %s, expected about %s", wait, firstBackoff)
		}
		if _, ok := enterNow(g); ok || !g.closed() {
			t.Error("a post gets through a closed gate")
		}
		began := time.Now()
		probe := mustEnter(t, g)
		if waited := time.Since(began); waited != wait {
			t.Errorf("the probe waited %s, expected %s", waited, wait)
		}
		time.Sleep(time.Hour)
		if _, ok := enterNow(g); ok || !g.closed() {
			t.Error("a second probe goes while the first is under way")
		}
		probe.succeeded()
		if _, ok := enterNow(g); !ok || g.closed() {
			t.Error("the gate is closed after a probe that passed")
		}
	})
}

func TestOneProbeGoesAtATimeAndTheOthersFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		mustEnter(t, g).failed(time.Minute)
		var through atomic.Int32
		passes := make(chan *pass, 10)
		for range 10 {
			go func() {
				p, err := g.enter(t.Context())
				if err == nil {
					through.Add(1)
					passes <- p
				}
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if through.Load() != 1 {
			t.Fatalf("%d posts went, expected one probe", through.Load())
		}
		(<-passes).succeeded()
		synctest.Wait()
		if through.Load() != 10 {
			t.Errorf("%d posts went after the probe, expected all 10", through.Load())
		}
	})
}

func TestPostsThatFailTogetherAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		passes := []*pass{mustEnter(t, g), mustEnter(t, g), mustEnter(t, g), mustEnter(t, g)}
		for _, p := range passes {
			p.failed(0)
		}
		wait := mustEnter(t, g).failed(0) // the probe: the second failure, not the fifth
		if wait < 2*firstBackoff*7/10 || wait > 2*firstBackoff*13/10 {
			t.Errorf("closed for %s after the second failure, expected about %s", wait, 2*firstBackoff)
		}
	})
}

func TestTheBackoffGrowsToItsBoundAndResetsAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		longest := time.Duration(0)
		for range 20 {
			longest = max(longest, mustEnter(t, g).failed(0))
		}
		if longest < longestBackoff*7/10 || longest > longestBackoff {
			t.Errorf("the longest wait was %s, expected nearly or just %s", longest, longestBackoff)
		}
		mustEnter(t, g).succeeded()
		if wait := mustEnter(t, g).failed(0); wait > firstBackoff*13/10 {
			t.Errorf("closed for %s after a success, expected about %s", wait, firstBackoff)
		}
	})
}

func TestTheGateIsClosedAsLongAsSlackAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		first, second := mustEnter(t, g), mustEnter(t, g)
		if wait := first.failed(10 * time.Minute); wait != 10*time.Minute {
			t.Errorf("closed for %s, expected 10m", wait)
		}
		if wait := second.failed(time.Minute); wait != 10*time.Minute {
			t.Errorf("closed for %s, expected the longer of both, 10m", wait)
		}
		began := time.Now()
		mustEnter(t, g)
		if waited := time.Since(began); waited != 10*time.Minute {
			t.Errorf("the probe waited %s, expected 10m", waited)
		}
	})
}

// The answer to a post from before the gate closed proves nothing.
func TestALateAnswerDoesNotOpenTheGate(t *testing.T) {
	g := newGate()
	first, second := mustEnter(t, g), mustEnter(t, g)
	first.failed(time.Hour)
	if second.succeeded() || !g.closed() {
		t.Error("a late answer opened the gate")
	}
}

// Slack has asked another replica to pause, so this one has not failed.
func TestAPauseOfAnotherReplicaIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for range 10 {
			mustEnter(t, g).closeFor(time.Minute)
		}
		if wait := mustEnter(t, g).failed(0); wait > firstBackoff*13/10 {
			t.Errorf("closed for %s after pauses and one failure, expected about %s", wait, firstBackoff)
		}
	})
}

// A post that is not made at all leaves the gate as it is; if it was to be the probe, the next one may be.
func TestAPostThatIsNotMadeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		mustEnter(t, g).release()
		if g.closed() {
			t.Error("the gate is closed by a post that was not made")
		}
		mustEnter(t, g).failed(time.Minute)
		mustEnter(t, g).release()
		if g.closed() {
			t.Error("no probe may enter although one is due")
		}
		began := time.Now()
		probe := mustEnter(t, g)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the next probe waited %s, expected not at all", waited)
		}
		if _, ok := enterNow(g); ok {
			t.Error("two probes are under way")
		}
		probe.succeeded()
	})
}

func TestWaitingAtTheGateEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		mustEnter(t, g).failed(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.enter(ctx); err != context.DeadlineExceeded {
			t.Errorf("error %v, expected the context's", err)
		}
	})
}

// A pass counts once: what is deferred after the end of a post must not undo it.
func TestAPassCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		mustEnter(t, g).failed(time.Minute)
		probe := mustEnter(t, g)
		probe.closeFor(time.Minute)
		probe.release()
		if probe.succeeded() || probe.failed(time.Hour) != 0 {
			t.Error("a used pass reports a second end")
		}
		if _, ok := enterNow(g); ok || !g.closed() {
			t.Error("a used pass has opened the gate")
		}
		second := mustEnter(t, g)
		probe.release()
		if _, ok := enterNow(g); ok {
			t.Error("the pass of an earlier probe has let a second probe through")
		}
		second.succeeded()
	})
}
