package lanes

import (
	"testing"
	"testing/synctest"
	"time"
)

var backoffs = Backoff{First: 500 * time.Millisecond, Max: time.Minute, MaxUnexplained: 5 * time.Second, Retries: time.Second}

// about reports whether a backoff is as expected, within its jitter of 30 %.
func about(got, want time.Duration) bool { return got >= want*7/10 && got <= want*13/10 }

// failNext fails the next post and returns how long the channel's gate stays closed.
func failNext(t *testing.T, l *Lanes[string], r Result) time.Duration {
	t.Helper()
	turn := next(t, l)
	turn.Finish(r)
	return time.Until(turn.lane.gate.opens())
}

func TestFailureClosesTheLaneUntilAProbePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 2)
		closed := failNext(t, l, Result{Signal: ChannelLimited})
		if !about(closed, backoffs.First) {
			t.Errorf("closed for %s, expected about %s", closed, backoffs.First)
		}
		probe := expectNext(t, l, "a0", closed)
		if proof := probe.Finish(Result{Signal: Posted, Done: true}); !proof.Channel {
			t.Error("the probe proves nothing")
		}
		expect(t, "after the probe", drain(l), "a1")
	})
}

// Posts in several lanes that fail together because of the workspace count as one failure.
func TestParallelFailuresCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		for _, channel := range []string{"a", "b", "c", "d"} {
			add(l, channel, 1)
		}
		_, turns := available(l)
		for _, turn := range turns {
			turn.Finish(Result{Signal: WorkspaceFailing})
		}
		next(t, l).Finish(Result{Signal: WorkspaceFailing})
		if closed := time.Until(l.workspace.until); !about(closed, 2*backoffs.First) {
			t.Errorf("closed for %s after the second failure, expected about %s", closed, 2*backoffs.First)
		}
	})
}

func TestBackoffGrowsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 2)
		longest := time.Duration(0)
		for range 20 {
			longest = max(longest, failNext(t, l, Result{Signal: ChannelLimited}))
		}
		if longest < backoffs.Max*7/10 || longest > backoffs.Max {
			t.Errorf("the longest wait was %s, expected nearly or just %s", longest, backoffs.Max)
		}
		next(t, l).Finish(Result{Signal: Posted, Done: true})
		if closed := failNext(t, l, Result{Signal: ChannelLimited}); !about(closed, backoffs.First) {
			t.Errorf("closed for %s after a success, expected about %s", closed, backoffs.First)
		}
	})
}

// The failure may be the fault of the event, so the channel is delayed only briefly.
func TestUnexplainedFailuresCloseBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 1)
		for range 20 {
			if closed := failNext(t, l, Result{Signal: ChannelFailing}); closed > backoffs.MaxUnexplained {
				t.Errorf("closed for %s, expected at most %s", closed, backoffs.MaxUnexplained)
			}
		}
	})
}

// A post that began before the gate closed proves nothing.
func TestLateSuccessOpensNothing(t *testing.T) {
	l := newLanes()
	add(l, "a", 1)
	add(l, "b", 1)
	first, second := next(t, l), next(t, l)
	first.Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Hour})
	if proof := second.Finish(Result{Signal: Posted, Done: true}); proof.Workspace || !proof.Channel || !l.Paused() {
		t.Error("a late answer opened the gate")
	}
}

// A late failure with a long pause does not end the probe. If that succeeds, the pause is over.
func TestOpenGateHasNoPauseLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		for _, channel := range []string{"a", "b", "c"} {
			add(l, channel, 2)
		}
		late := next(t, l)
		next(t, l).Finish(Result{Signal: WorkspaceFailing})
		probe := next(t, l)
		late.Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Hour})
		probe.Finish(Result{Signal: Posted, Done: true})
		next(t, l).Finish(Result{Signal: WorkspaceFailing})
		if closed := time.Until(l.workspace.until); !about(closed, backoffs.First) {
			t.Errorf("closed for %s after the probe and one failure, expected about %s", closed, backoffs.First)
		}
	})
}

// Slack paused another replica, so this one has not failed.
func TestPauseOfAnotherWorkerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 1)
		for range 10 {
			next(t, l).Finish(Result{Signal: ChannelPaused, AtLeast: time.Minute})
		}
		if closed := failNext(t, l, Result{Signal: ChannelLimited}); !about(closed, backoffs.First) {
			t.Errorf("closed for %s after pauses and one failure, expected about %s", closed, backoffs.First)
		}
	})
}

// A turn without a post leaves the gates as they are. If it was the probe, the next turn becomes the probe.
func TestTurnWithoutAPostProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 1)
		add(l, "b", 1)
		next(t, l).Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Minute})
		next(t, l).Finish(Result{})
		probe := nextNow(l)
		if probe == nil {
			t.Fatal("no other probe begins at once")
		}
		if nextNow(l) != nil {
			t.Error("two probes are under way")
		}
	})
}
