package lanes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// bounds that nothing reaches.
var wide = Size{Items: 1000, Bytes: 1 << 20}

func newLanes(concurrency int, channels ...string) *Lanes[string] {
	return New[string](concurrency, wide, backoffs, channels...)
}

// add queues n items in a channel's lane: a0, a1, ... in "a".
func add(l *Lanes[string], channel string, n int) {
	for i := range n {
		l.Add(channel, Item[string]{Value: fmt.Sprint(channel, i), Bytes: 1, Since: time.Now()})
	}
}

// next waits for a turn, which has to come.
func next(t *testing.T, l *Lanes[string]) *Turn[string] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour) // longer than anything that a test waits for
	defer cancel()
	turn, err := l.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// nextNow is the turn that may begin now, or nil.
func nextNow(l *Lanes[string]) *Turn[string] {
	turn, _, _ := l.tryNext(time.Now())
	return turn
}

// available takes every turn that may begin now, and lists their items in order.
func available(l *Lanes[string]) (items string, turns []*Turn[string]) {
	var names []string
	for turn := nextNow(l); turn != nil; turn = nextNow(l) {
		names, turns = append(names, turn.Item), append(turns, turn)
	}
	return strings.Join(names, " "), turns
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, expected %q", what, got, want)
	}
}

func TestLanesTakeTurns(t *testing.T) {
	l := newLanes(100, "a", "b", "c")
	add(l, "a", 4)
	add(l, "b", 2)
	add(l, "c", 1)
	got, _ := available(l)
	expect(t, "turns", got, "a0 b0 c0 a1 b1 a2 a3")
}

// A lane whose posts hang leaves half of the posts in flight to the others.
func TestALaneUsesHalfOfTheConcurrency(t *testing.T) {
	for concurrency, want := range map[int][]int{8: {4, 2, 1, 1}, 3: {1, 1, 1, 1}, 1: {1, 1, 1, 1}} {
		l := newLanes(concurrency, "a", "b", "c", "d")
		for i, channel := range []string{"a", "b", "c", "d"} {
			add(l, channel, 10)
			if _, turns := available(l); len(turns) != want[i] {
				t.Errorf("%d posts of lane %s out of %d, expected %d", len(turns), channel, concurrency, want[i])
			}
		}
	}
	l := newLanes(8, "a")
	add(l, "a", 10)
	if _, turns := available(l); len(turns) < 8 {
		t.Errorf("%d posts of the only lane, expected all 8", len(turns))
	}
}

// Whatever closes one lane, the other one goes on.
func TestOneLaneDoesNotWaitForAnother(t *testing.T) {
	for name, closes := range map[string]func(*Turn[string]){
		"a refusal":              func(turn *Turn[string]) { turn.ChannelFailed(time.Hour, true) },
		"a failure":              func(turn *Turn[string]) { turn.ChannelFailed(time.Hour, false) },
		"another replica's wait": func(turn *Turn[string]) { turn.PauseChannel(time.Hour) },
		"the pace":               func(turn *Turn[string]) { turn.Pace(time.Hour) },
	} {
		l := newLanes(8, "a", "b")
		add(l, "a", 3)
		turn := next(t, l)
		closes(turn)
		turn.Return(0)
		add(l, "b", 2)
		got, _ := available(l)
		expect(t, name, got, "b0 b1")
	}
}

func TestTheWorkspaceConcernsEveryLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8, "a", "b")
		add(l, "a", 2)
		add(l, "b", 2)
		turn := next(t, l)
		if closed := turn.WorkspaceFailed(time.Minute); closed != time.Minute || !l.Closed() {
			t.Errorf("closed for %s, expected 1m", closed)
		}
		turn.Return(0)
		if got, _ := available(l); got != "" {
			t.Errorf("%s go out while the workspace is closed", got)
		}
		began := time.Now()
		probe := next(t, l)
		if waited := time.Since(began); waited != time.Minute {
			t.Errorf("the probe waited %s, expected 1m", waited)
		}
		if got, _ := available(l); got != "" {
			t.Errorf("%s go out beside the probe", got)
		}
		if proof := probe.Succeeded(true); !proof.Workspace || l.Closed() {
			t.Error("the workspace is closed after a probe that went well")
		}
		probe.Done()
		if _, turns := available(l); len(turns) != 3 {
			t.Errorf("%d turns after the probe, expected 3", len(turns))
		}
	})
}

// Slack has answered about the channel, so it can be reached: the probe of the workspace has succeeded.
func TestARefusedChannelProvesTheWorkspace(t *testing.T) {
	for answered, want := range map[bool]bool{true: false, false: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes(8, "a", "b")
			add(l, "a", 1)
			add(l, "b", 2)
			turn := next(t, l)
			turn.WorkspaceFailed(time.Minute)
			turn.Return(0)
			probe := next(t, l)
			probe.ChannelFailed(time.Hour, answered)
			probe.Return(0)
			other := next(t, l) // in either case: the next probe, or one of many
			if stillProbing := l.Closed(); stillProbing != want {
				t.Errorf("answered %t: the workspace waits for a probe %t, expected %t", answered, stillProbing, want)
			}
			other.Done()
		})
	}
}

func TestAnItemWaitsAloneForItsDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 3)
		next(t, l).Return(time.Minute)
		got, turns := available(l)
		expect(t, "beside the delayed one", got, "a1 a2")
		for _, turn := range turns {
			turn.Done()
		}
		began := time.Now()
		turn := next(t, l)
		if waited := time.Since(began); turn.Item != "a0" || waited != time.Minute {
			t.Errorf("%s after %s, expected a0 after 1m", turn.Item, waited)
		}
	})
}

// An item that fails again and again is not the lane's only probe.
func TestADelayedItemDoesNotComeBeforeAFreshOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 2)
		for range 2 {
			next(t, l).Return(time.Second)
		}
		time.Sleep(2 * time.Second)
		probe := next(t, l) // both are due, and one of them is tried before there is anything fresh
		add(l, "b", 0)
		l.Add("a", Item[string]{Value: "fresh"})
		probe.Return(0)
		got, turns := available(l)
		expect(t, "after two that failed", got, "fresh a1 a0")
		for _, turn := range turns[1:] {
			turn.Return(time.Second)
		}
		l.Add("a", Item[string]{Value: "second"})
		time.Sleep(2 * time.Second)
		got, _ = available(l)
		expect(t, "when they are due again", got, "second a1 a0")
	})
}

// However many fresh ones arrive, they go in their order, and what was delayed has its turn among them.
func TestFreshItemsDoNotOvertakeForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(1)
		add(l, "a", 1)
		next(t, l).Return(time.Second)
		for _, name := range []string{"b", "c", "d"} {
			l.Add("a", Item[string]{Value: name})
		}
		time.Sleep(2 * time.Second)
		var order []string
		for i := range 6 {
			turn := next(t, l)
			order = append(order, turn.Item)
			turn.Done()
			l.Add("a", Item[string]{Value: fmt.Sprint("new", i)})
		}
		expect(t, "turns", strings.Join(order, " "), "b a0 c d new0 new1")
	})
}

func TestThePaceHoldsALaneUntilItHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 2)
		turn := next(t, l)
		turn.Pace(3 * time.Second)
		turn.Return(0)
		began := time.Now()
		if next(t, l); time.Since(began) != 3*time.Second {
			t.Errorf("the next turn came after %s, expected 3s", time.Since(began))
		}
		if got, _ := available(l); got != "a1" {
			t.Errorf("%q beside it: the pace is no probe, expected a1", got)
		}
	})
}

func TestNothingGoesOutWhileAllIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		add(l, "a", 1)
		l.Hold(time.Second)
		l.Hold(time.Millisecond)
		began := time.Now()
		if next(t, l); time.Since(began) != time.Second {
			t.Errorf("the next turn came after %s, expected 1s", time.Since(began))
		}
	})
}

func TestNextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, expected the context's", err)
		}
		add(l, "a", 1)
		turn := next(t, l)
		l.Close()
		ended := make(chan error, 1)
		go func() { _, err := l.Next(t.Context()); ended <- err }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("%v while an item may come back", err)
		default:
		}
		turn.Done()
		if err := <-ended; !errors.Is(err, ErrClosed) || l.held.Items > 0 {
			t.Errorf("error %v, expected ErrClosed", err)
		}
	})
}

func TestTallyOfALane(t *testing.T) {
	l := newLanes(8)
	add(l, "a", 6)
	_, turns := available(l)
	turns[0].Succeeded(true)
	turns[1].Succeeded(false) // refused for good
	turns[2].ChannelFailed(0, false)
	turns[3].ChannelFailed(time.Second, true) // a limit
	turns[4].PauseChannel(time.Second)
	turns[0].ChannelFailed(0, false) // a second report
	add(l, "b", 1)
	if got := next(t, l).Tally(); got != (Tally{}) {
		t.Errorf("another lane has %+v, expected nothing", got)
	}
	if want := (Tally{Posted: 1, Failed: 1}); turns[5].Tally() != want {
		t.Errorf("%+v, expected %+v", turns[5].Tally(), want)
	}
}
