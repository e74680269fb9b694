package lanes

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var backoffs = Backoff{First: 500 * time.Millisecond, Longest: time.Minute, LongestUnexplained: 5 * time.Second}

// about reports whether a backoff is what is expected of it, with its jitter of 30 %.
func about(got, want time.Duration) bool { return got >= want*7/10 && got <= want*13/10 }

// failNext fails the next post, and returns for how long the channel's gate is closed then.
func failNext(t *testing.T, l *Lanes[string], atLeast time.Duration) time.Duration {
	t.Helper()
	turn := next(t, l)
	defer turn.Return(0)
	return turn.ChannelFailed(atLeast, true)
}

func TestAFailureClosesTheLaneUntilAProbePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 20)
		closed := failNext(t, l, 0)
		if !about(closed, backoffs.First) {
			t.Errorf("closed for %s, expected about %s", closed, backoffs.First)
		}
		if nextNow(l) != nil {
			t.Error("a post gets through a closed gate")
		}
		began := time.Now()
		probe := next(t, l)
		if waited := time.Since(began); waited != closed {
			t.Errorf("the probe waited %s, expected %s", waited, closed)
		}
		var through atomic.Int32
		for range 7 {
			go func() {
				if _, err := l.Next(t.Context()); err == nil {
					through.Add(1)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if through.Load() != 0 {
			t.Errorf("%d posts went beside the probe", through.Load())
		}
		if proof := probe.Succeeded(true); !proof.Channel {
			t.Error("the probe proves nothing")
		}
		synctest.Wait()
		if through.Load() != 7 {
			t.Errorf("%d posts went after the probe, expected all 7", through.Load())
		}
	})
}

func TestPostsThatFailTogetherAreOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 4)
		_, turns := available(l)
		for _, turn := range turns {
			turn.ChannelFailed(0, true)
			turn.Return(0)
		}
		// the probe: the second failure, not the fifth
		if closed := failNext(t, l, 0); !about(closed, 2*backoffs.First) {
			t.Errorf("closed for %s after the second failure, expected about %s", closed, 2*backoffs.First)
		}
	})
}

func TestBackoffGrowsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 2)
		longest := time.Duration(0)
		for range 20 {
			longest = max(longest, failNext(t, l, 0))
		}
		if longest < backoffs.Longest*7/10 || longest > backoffs.Longest {
			t.Errorf("the longest wait was %s, expected nearly or just %s", longest, backoffs.Longest)
		}
		turn := next(t, l)
		turn.Succeeded(true)
		turn.Done()
		if closed := failNext(t, l, 0); !about(closed, backoffs.First) {
			t.Errorf("closed for %s after a success, expected about %s", closed, backoffs.First)
		}
	})
}

// A failure that may be the event's own must not keep the others of its channel waiting for long.
func TestUnexplainedFailuresCloseBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 1)
		for range 20 {
			turn := next(t, l)
			if closed := turn.ChannelFailed(0, false); closed > backoffs.LongestUnexplained {
				t.Errorf("closed for %s, expected at most %s", closed, backoffs.LongestUnexplained)
			}
			turn.Return(0)
		}
	})
}

func TestALaneIsClosedAsLongAsSlackAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 2)
		first, second := next(t, l), next(t, l)
		if closed := first.ChannelFailed(10*time.Minute, true); closed != 10*time.Minute {
			t.Errorf("closed for %s, expected 10m", closed)
		}
		if closed := second.ChannelFailed(time.Minute, true); closed != 10*time.Minute {
			t.Errorf("closed for %s, expected the longer of both, 10m", closed)
		}
		first.Return(0)
		began := time.Now()
		if next(t, l); time.Since(began) != 10*time.Minute {
			t.Errorf("the probe waited %s, expected 10m", time.Since(began))
		}
	})
}

// The answer to a post from before the gate closed proves nothing.
func TestALateAnswerOpensNothing(t *testing.T) {
	l := newLanes(8)
	add(l, "a", 3)
	first, second := next(t, l), next(t, l)
	first.WorkspaceFailed(time.Hour)
	if proof := second.Succeeded(true); proof.Workspace || !proof.Channel || !l.Closed() {
		t.Error("a late answer opened the gate")
	}
}

// Slack has asked another replica to pause, so this one has not failed.
func TestAPauseOfAnotherReplicaIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 1)
		for range 10 {
			turn := next(t, l)
			turn.PauseChannel(time.Minute)
			turn.Return(0)
		}
		if closed := failNext(t, l, 0); !about(closed, backoffs.First) {
			t.Errorf("closed for %s after pauses and one failure, expected about %s", closed, backoffs.First)
		}
	})
}

// A turn without a post leaves the gate as it is; if it was to be the probe, the next one may be.
func TestATurnWithoutAPostChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 2)
		next(t, l).Return(0)
		failNext(t, l, time.Minute)
		next(t, l).Return(0)
		probe := nextNow(l)
		if probe == nil {
			t.Fatal("no other probe goes at once")
		}
		if nextNow(l) != nil {
			t.Error("two probes are under way")
		}
	})
}

// The first report of a turn counts: what is deferred after the end of a post must not undo it.
func TestATurnReportsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 3)
		failNext(t, l, time.Minute)
		probe := next(t, l)
		probe.PauseChannel(time.Minute)
		if proof := probe.Succeeded(true); proof.Channel || probe.ChannelFailed(time.Hour, true) != 0 {
			t.Error("a turn reports a second end")
		}
		probe.Return(0)
		if nextNow(l) != nil {
			t.Error("the end of a turn has opened the gate")
		}
	})
}

// Slack refused this post because of the workspace, as Redis finds out after the channel's gate is closed.
func TestWorkspacePauseAfterAnotherReport(t *testing.T) {
	l := newLanes(8)
	add(l, "a", 1)
	turn := next(t, l)
	turn.ChannelFailed(time.Minute, true)
	turn.PauseWorkspace(time.Minute)
	turn.Return(0)
	add(l, "b", 1)
	if nextNow(l) != nil || !l.Closed() {
		t.Error("another channel's post goes out while the workspace pauses")
	}
}
