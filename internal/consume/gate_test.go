package consume

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// enterNow enters without waiting; ok tells whether the gate let it.
func enterNow(g *gate) (round int, ok bool) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	round, err := g.enter(ctx)
	return round, err == nil
}

func mustEnter(t *testing.T, g *gate) int {
	t.Helper()
	round, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return round
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
		wait := g.failed(mustEnter(t, g), 0)
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
		g.passed(probe)
		if _, ok := enterNow(g); !ok || g.closed() {
			t.Error("the gate is closed after a probe that passed")
		}
	})
}

func TestOneProbeGoesAtATimeAndTheOthersFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.failed(mustEnter(t, g), time.Minute)
		var through atomic.Int32
		rounds := make(chan int, 10)
		for range 10 {
			go func() {
				round, err := g.enter(t.Context())
				if err == nil {
					through.Add(1)
					rounds <- round
				}
			}()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if through.Load() != 1 {
			t.Fatalf("%d posts went, expected one probe", through.Load())
		}
		g.passed(<-rounds)
		synctest.Wait()
		if through.Load() != 10 {
			t.Errorf("%d posts went after the probe, expected all 10", through.Load())
		}
	})
}

func TestPostsThatFailTogetherAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		rounds := []int{mustEnter(t, g), mustEnter(t, g), mustEnter(t, g), mustEnter(t, g)}
		for _, round := range rounds {
			g.failed(round, 0)
		}
		wait := g.failed(mustEnter(t, g), 0) // the probe: the second failure, not the fifth
		if wait < 2*firstBackoff*7/10 || wait > 2*firstBackoff*13/10 {
			t.Errorf("closed for %s after the second failure, expected about %s", wait, 2*firstBackoff)
		}
	})
}

func TestTheBackoffGrowsToItsBoundAndBeginsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		longest := time.Duration(0)
		for range 20 {
			longest = max(longest, g.failed(mustEnter(t, g), 0))
		}
		if longest < longestBackoff*7/10 || longest > longestBackoff {
			t.Errorf("the longest wait was %s, expected nearly or just %s", longest, longestBackoff)
		}
		g.passed(mustEnter(t, g))
		if wait := g.failed(mustEnter(t, g), 0); wait > firstBackoff*13/10 {
			t.Errorf("closed for %s after a success, expected about %s", wait, firstBackoff)
		}
	})
}

func TestTheGateIsClosedAsLongAsSlackAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		first, second := mustEnter(t, g), mustEnter(t, g)
		if wait := g.failed(first, 10*time.Minute); wait != 10*time.Minute {
			t.Errorf("closed for %s, expected 10m", wait)
		}
		if wait := g.failed(second, time.Minute); wait != 10*time.Minute {
			t.Errorf("closed for %s, expected the longer of both, 10m", wait)
		}
		began := time.Now()
		mustEnter(t, g)
		if waited := time.Since(began); waited != 10*time.Minute {
			t.Errorf("the probe waited %s, expected 10m", waited)
		}
	})
}

// An answer to a post that left before the gate closed says nothing about now.
func TestALateAnswerDoesNotOpenTheGate(t *testing.T) {
	g := newGate()
	first, second := mustEnter(t, g), mustEnter(t, g)
	g.failed(first, time.Hour)
	if g.passed(second) || !g.closed() {
		t.Error("a late answer opened the gate")
	}
}

// A pause that another replica was told of is no failure of this one.
func TestARestIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for range 10 {
			g.rest(mustEnter(t, g), time.Minute)
		}
		if wait := g.failed(mustEnter(t, g), 0); wait > firstBackoff*13/10 {
			t.Errorf("closed for %s after rests and one failure, expected about %s", wait, firstBackoff)
		}
	})
}

// A post that is not made at all leaves the gate as it is; if it was to be the probe, the next one may be.
func TestAPostThatIsNotMadeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.rest(mustEnter(t, g), 0)
		if g.closed() {
			t.Error("the gate is closed by a post that was not made")
		}
		g.failed(mustEnter(t, g), time.Minute)
		g.rest(mustEnter(t, g), 0)
		if g.closed() {
			t.Error("nobody may come to try although a probe is due")
		}
		began := time.Now()
		probe := mustEnter(t, g)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the next probe waited %s, expected not at all", waited)
		}
		if _, ok := enterNow(g); ok {
			t.Error("two probes are under way")
		}
		g.passed(probe)
	})
}

func TestWaitingAtTheGateEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.failed(mustEnter(t, g), time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.enter(ctx); err != context.DeadlineExceeded {
			t.Errorf("error %v, expected the context's", err)
		}
	})
}
