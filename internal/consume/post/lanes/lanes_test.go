package lanes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newLanes(channels ...string) *Lanes[string] {
	return New[string](Size{Items: 1000, Bytes: 1 << 20}, backoffs, channels...)
}

// add queues n items in the lane of a channel, named after the channel: a0, a1, and so on.
func add(l *Lanes[string], channel string, n int) {
	for i := range n {
		l.Add(channel, Item[string]{Value: fmt.Sprint(channel, i), Bytes: 1, Since: time.Now()})
	}
}

// next waits for a turn, and fails the test if none begins.
func next(t *testing.T, l *Lanes[string]) *Turn[string] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour) // longer than any wait of a test
	defer cancel()
	turn, err := l.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// nextNow returns the turn that may begin now, or nil.
func nextNow(l *Lanes[string]) *Turn[string] {
	turn, _, _ := l.tryNext(time.Now())
	return turn
}

// available begins every turn that may begin now and lists the items in order.
func available(l *Lanes[string]) (items string, turns []*Turn[string]) {
	var names []string
	for turn := nextNow(l); turn != nil; turn = nextNow(l) {
		names, turns = append(names, turn.Item), append(turns, turn)
	}
	return strings.Join(names, " "), turns
}

// drain posts every item that may be posted now and lists the items in order.
func drain(l *Lanes[string]) string {
	var names []string
	for turn := nextNow(l); turn != nil; turn = nextNow(l) {
		names = append(names, turn.Item)
		turn.Finish(Result{Signal: Posted, Done: true})
	}
	return strings.Join(names, " ")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, expected %q", what, got, want)
	}
}

// expectNext waits for a turn and checks its item and the time waited.
func expectNext(t *testing.T, l *Lanes[string], item string, after time.Duration) *Turn[string] {
	t.Helper()
	began := time.Now()
	turn := next(t, l)
	if waited := time.Since(began); turn.Item != item || waited != after {
		t.Errorf("%s after %s, expected %s after %s", turn.Item, waited, item, after)
	}
	return turn
}

func TestLanePostsOneAtATimeInOrder(t *testing.T) {
	l := newLanes("a", "b", "c")
	add(l, "a", 4)
	add(l, "b", 2)
	add(l, "c", 1)
	got, turns := available(l)
	expect(t, "first turns", got, "a0 b0 c0")
	for _, turn := range turns {
		turn.Finish(Result{Signal: Posted, Done: true})
	}
	expect(t, "the others", drain(l), "a1 b1 a2 a3")
}

func TestLaneThatWaitsLongestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes("a", "b", "idle")
		add(l, "a", 2)
		add(l, "b", 1)
		time.Sleep(time.Second)
		next(t, l).Finish(Result{Signal: Posted, Done: true}) // a0
		add(l, "idle", 1)
		expect(t, "turns", drain(l), "b0 a1 idle0")
	})
}

func TestClosedLaneDelaysNoOther(t *testing.T) {
	for name, result := range map[string]Result{
		"a limit":               {Signal: ChannelLimited, AtLeast: time.Hour},
		"another worker's wait": {Signal: ChannelPaused, AtLeast: time.Hour},
		"the pace":              {Pace: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes("a", "b")
			add(l, "a", 2)
			next(t, l).Finish(result)
			add(l, "b", 2)
			expect(t, name, drain(l), "b0 b1")
			expectNext(t, l, "a0", time.Hour)
		})
	}
}

func TestWorkspaceFailureClosesEveryLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes("a", "b")
		add(l, "a", 2)
		add(l, "b", 2)
		next(t, l).Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Minute})
		if got := drain(l); got != "" || !l.Paused() {
			t.Errorf("%q posted while the workspace is closed, paused %t", got, l.Paused())
		}
		probe := expectNext(t, l, "a0", time.Minute)
		if got, _ := available(l); got != "" {
			t.Errorf("%s begin beside the probe", got)
		}
		if proof := probe.Finish(Result{Signal: Posted, Done: true}); !proof.Workspace || l.Paused() {
			t.Error("the workspace is closed after a probe that succeeded")
		}
		expect(t, "after the probe", drain(l), "b0 a1 b1")
	})
}

// A rate limit of one channel shows that Slack is reachable, so the probe of the workspace succeeded.
func TestLimitedChannelReopensTheWorkspace(t *testing.T) {
	for signal, open := range map[Signal]bool{ChannelLimited: true, ChannelFailing: false} {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes("a", "b", "c")
			for _, channel := range []string{"a", "b", "c"} {
				add(l, channel, 1)
			}
			next(t, l).Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Minute})
			next(t, l).Finish(Result{Signal: signal, AtLeast: time.Hour})
			next(t, l) // the next probe, or an ordinary turn
			if l.Paused() == open {
				t.Errorf("signal %d: the workspace waits for a probe %t, expected %t", signal, l.Paused(), !open)
			}
		})
	}
}

func TestDelayedItemWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 3)
		next(t, l).Finish(Result{After: time.Minute})
		expect(t, "beside the delayed item", drain(l), "a1 a2")
		expectNext(t, l, "a0", time.Minute)
	})
}

// Nothing is fetched during a pause of the workspace. So an item that arrives just after it is the probe, and not
// the one that provoked the pause, whichever channels they are for.
func TestFreshItemIsTheProbeOfTheWorkspace(t *testing.T) {
	for _, channel := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes("a", "b")
			add(l, "a", 1)
			next(t, l).Finish(Result{Signal: WorkspaceFailing, AtLeast: time.Hour, After: time.Second})
			time.AfterFunc(time.Hour+freshFirst/2, func() {
				l.Add(channel, Item[string]{Value: "fresh", Bytes: 1, Since: time.Now()})
			})
			fails := Result{Signal: WorkspaceFailing, AtLeast: time.Hour, After: time.Second}
			expectNext(t, l, "fresh", time.Hour+freshFirst/2).Finish(fails)
			// With none, the others take their turns a little later.
			expectNext(t, l, "a0", time.Hour+freshFirst).Finish(Result{Signal: Posted, Done: true})
			expectNext(t, l, "fresh", 0).Finish(Result{Signal: Posted, Done: true})
		})
	}
}

// Items go before the retries of failing ones. A retry still has every fifth turn, however many items arrive.
func TestFreshItemsGoBeforeRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 2)
		for range 2 {
			next(t, l).Finish(Result{Signal: Posted, After: time.Second})
		}
		time.Sleep(2 * time.Second)
		var order []string
		for i := range 11 {
			l.Add("a", Item[string]{Value: fmt.Sprint("new", i)})
			turn := next(t, l)
			order = append(order, turn.Item)
			turn.Finish(Result{Signal: Posted, Done: true})
		}
		expect(t, "turns", strings.Join(order, " "), "new0 new1 a0 new2 new3 new4 new5 a1 new6 new7 new8")
		expect(t, "then", drain(l), "new9 new10")
	})
}

// A retry has a place in the pace of its channel, so it has the next turn as well.
func TestPacedRetryKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", retryEvery)
		for range retryEvery - 1 {
			next(t, l).Finish(Result{Signal: ChannelFailing, After: time.Second})
		}
		time.Sleep(time.Minute)
		next(t, l).Finish(Result{Pace: time.Second})
		expectNext(t, l, "a0", time.Second).Finish(Result{Signal: Posted, Done: true})
		expect(t, "after the retry", drain(l), "a4 a1 a2 a3")
	})
}

// addOf queues an item of a category in lane "a".
func addOf(l *Lanes[string], category, value string) {
	l.Add("a", Item[string]{Value: value, Category: category, Since: time.Now()})
}

// If the events of one category fail, another category is the probe. Without a failure the order is by age.
func TestProbeIsOfAnotherCategory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		for _, value := range []string{"bad0", "bad1", "bad2", "worse0", "worse1", "good0", "good1"} {
			addOf(l, strings.TrimRight(value, "0123456789"), value)
			time.Sleep(time.Millisecond)
		}
		var order []string
		for range 7 {
			turn := next(t, l)
			order = append(order, turn.Item)
			if strings.HasPrefix(turn.Item, "good") {
				turn.Finish(Result{Signal: Posted, Done: true})
			} else {
				turn.Finish(Result{Signal: ChannelFailing, After: time.Hour})
			}
		}
		// good0 opens the gate, so the order is by age again.
		expect(t, "turns", strings.Join(order, " "), "bad0 worse0 good0 bad1 bad2 worse1 good1")
	})
}

// An item that fails while its channel takes others is at fault, and explains failures of its category for a
// minute. So such failures do not close the channel.
func TestWhatAFailureSaysAboutItsChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		failed := func(what string, blames bool) {
			t.Helper()
			turn := next(t, l)
			got := turn.BlamesChannel()
			turn.Finish(Result{Signal: ChannelFailing, After: 3 * time.Second})
			closed := l.States()[0].Closed > 0
			if got != blames || closed != blames {
				t.Errorf("%s: %s blames the channel %t and closes it %t, expected %t", what, turn.Item, got, closed, blames)
			}
		}
		taken := func() {
			t.Helper()
			addOf(l, "good", "good")
			turn := next(t, l)
			expect(t, "turn", turn.Item, "good")
			turn.Finish(Result{Signal: Posted, Done: true})
		}
		addOf(l, "bad", "bad0")
		failed("nothing was taken yet", true)
		failed("nor since the first failure", true)
		taken()
		failed("the channel took another", false)
		addOf(l, "bad", "bad1")
		failed("so its category is known to fail", false)
		addOf(l, "other", "other")
		failed("another category is not", true)
		taken()
		time.Sleep(maxSilence + time.Second)
		addOf(l, "bad", "bad2")
		failed("nothing was taken for a minute", true)
		failed("so the next is a probe", true)
		taken()
		for range 9 {
			failed("each of them is at fault", false)
		}
	})
}

// Retries follow each other with a pause, so they leave room in the pace.
func TestRetriesKeepADistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 3)
		for range 3 {
			next(t, l).Finish(Result{Signal: ChannelFailing, After: time.Hour})
		}
		add(l, "good", 1)
		next(t, l).Finish(Result{Signal: Posted, Done: true})
		l.lane("a").gate.open = true
		time.Sleep(2 * time.Hour)
		for i, after := range []time.Duration{0, backoffs.Retries, backoffs.Retries} {
			l.lane("a").accepted = time.Now()
			expectNext(t, l, fmt.Sprint("a", i), after).Finish(Result{Signal: ChannelFailing, After: time.Hour})
		}
	})
}

// An item that returns to its lane, from a turn or from the server, is placed by age.
func TestOldestItemGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		began := time.Now()
		for i := range 5 {
			l.Add("a", Item[string]{Value: fmt.Sprint("a", i), Since: began.Add(time.Duration(i) * time.Second)})
		}
		next(t, l).Finish(Result{})
		l.Add("a", Item[string]{Value: "returned", Since: began.Add(1500 * time.Millisecond)})
		l.Add("a", Item[string]{Value: "oldest", Since: began.Add(-time.Second)})
		l.Add("a", Item[string]{Value: "newest", Since: began.Add(time.Minute)})
		expect(t, "turns", drain(l), "oldest a0 a1 returned a2 a3 a4 newest")
	})
}

func TestHoldStopsAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 1)
		l.Hold(time.Second)
		l.Hold(time.Millisecond)
		expectNext(t, l, "a0", time.Second)
	})
}

func TestNextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
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
		turn.Finish(Result{Done: true})
		if err := <-ended; !errors.Is(err, ErrClosed) || l.held != (Size{}) {
			t.Errorf("error %v with %v held, expected ErrClosed with nothing", err, l.held)
		}
	})
}

// The tally has the first posts of items alone, and each lane has its own.
func TestLaneTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 6)
		for _, signal := range []Signal{Posted, Rejected, ChannelFailing, ChannelLimited, ChannelPaused} {
			next(t, l).Finish(Result{Signal: signal, Done: true})
		}
		for range 10 {
			next(t, l).Finish(Result{Signal: ChannelFailing})
		}
		next(t, l).Finish(Result{Signal: Posted, Done: true})
		add(l, "a", 1)
		if want, got := (Tally{Posted: 1, Failed: 2}), next(t, l).Tally(); got != want {
			t.Errorf("%+v, expected %+v", got, want)
		}
		add(l, "b", 1)
		if got := next(t, l).Tally(); got != (Tally{}) {
			t.Errorf("another lane has %+v, expected nothing", got)
		}
	})
}

// Each slow lane finds room for its next item, and all lanes together keep within their budget.
func TestLanesShareTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeps := func(l *Lanes[string], channel string, bytes int64) (items int) {
			l.Add(channel, Item[string]{Bytes: bytes})
			time.Sleep(slowDrain) // without a turn: the lane is slow from now on
			for items = 1; ; items++ {
				l.Add(channel, Item[string]{Bytes: bytes})
				if _, found := l.Surplus(channel); found {
					return items
				}
			}
		}
		l := New[string](Size{Items: 120, Bytes: 1 << 20}, backoffs)
		var got []int
		for i := range 4 {
			got = append(got, keeps(l, fmt.Sprint(i), 1))
		}
		if diff := cmp.Diff([]int{60, 30, 15, 7}, got); diff != "" {
			t.Errorf("items of each lane (-want +got):\n%s", diff)
		}
		l = New[string](Size{Items: 1000, Bytes: 1000}, backoffs)
		if got := keeps(l, "a", 100); got != 5 {
			t.Errorf("%d items of 100 bytes in a room of 1000, expected 5", got)
		}
		l.Add("b", Item[string]{Bytes: 5000})
		if _, found := l.Surplus("b"); found {
			t.Error("a lane gives up its only item")
		}
	})
}

func TestFastLaneUsesAllRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[string](Size{Items: 120, Bytes: 12_000}, backoffs)
		add(l, "fast", 120)
		time.Sleep(stallTime - time.Millisecond)
		if _, found := l.Surplus("fast"); found {
			t.Error("a lane without a slow turn gives items up")
		}
		add(l, "other", 2)
		if _, found := l.Surplus("other"); !found {
			t.Error("a fast lane gives nothing up although all room is used")
		}
		time.Sleep(time.Millisecond)
		surplus := 0
		for _, found := l.Surplus("fast"); found; _, found = l.Surplus("fast") {
			surplus++
		}
		if surplus != 61 {
			t.Errorf("a stalled lane gives up %d items beside one of another lane, expected 61 of 120", surplus)
		}
	})
}

// A lane gives up its youngest item, but none that had a turn.
func TestSurplusIsTheYoungest(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	l := New[string](Size{Items: 1, Bytes: 100}, backoffs)
	surplus := func() string {
		item, _ := l.Surplus("a")
		return item.Value
	}
	for i := range 4 {
		l.Add("a", Item[string]{Value: fmt.Sprint("a", i), Bytes: 1, Since: at(10 * i)})
	}
	expect(t, "the youngest", surplus(), "a3")
	turn := next(t, l)
	l.Add("a", Item[string]{Value: "tried", Bytes: 1, Since: at(99)})
	turn.Finish(Result{Done: true, Signal: Posted})
	expect(t, "the youngest", surplus(), "tried")
	if want := (Size{Items: 2, Bytes: 2}); l.held != want {
		t.Errorf("%+v held, expected %+v", l.held, want)
	}

	l = New[string](Size{Items: 1, Bytes: 100}, backoffs)
	l.Add("a", Item[string]{Value: "had a turn", Since: at(30)})
	next(t, l).Finish(Result{})
	l.Add("a", Item[string]{Value: "older", Since: at(1)})
	expect(t, "an item without a turn", surplus(), "older")
}

// Beyond the room every lane with several items is crowded, within it only a slow one.
func TestCrowdedLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[string](Size{Items: 20, Bytes: 1 << 20}, backoffs)
		add(l, "one item", 1)
		add(l, "slow", 9)
		time.Sleep(slowDrain)
		add(l, "short", 3)
		add(l, "long", 8)
		time.Sleep(stallTime)
		if diff := cmp.Diff([]string{"slow", "long", "short"}, l.Crowded()); diff != "" {
			t.Errorf("beyond the room, the slowest first (-want +got):\n%s", diff)
		}
		l.Surplus("slow")
		if diff := cmp.Diff([]string{"slow"}, l.Crowded()); diff != "" {
			t.Errorf("within the room (-want +got):\n%s", diff)
		}
	})
}

func TestDrainTimeFollowsTheLastTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		add(l, "a", 100)
		for range 50 {
			turn := next(t, l)
			time.Sleep(100 * time.Millisecond)
			turn.Finish(Result{Signal: Posted, Done: true})
		}
		if drain := l.DrainTime("a"); drain < 4*time.Second || drain > 5*time.Second {
			t.Errorf("%s for 50 items of 100 ms, expected 5s", drain)
		}
		next(t, l)
		time.Sleep(10 * time.Second)
		if drain := l.DrainTime("a"); drain < 500*time.Second {
			t.Errorf("%s for 50 items behind a post that takes 10 s, expected 500s", drain)
		}
	})
}

func TestLaneState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes("b")
		began := time.Now()
		add(l, "a", 2)
		time.Sleep(time.Second)
		add(l, "a", 1)
		next(t, l).Finish(Result{Signal: ChannelFailing, AtLeast: time.Minute, After: time.Hour, Pace: time.Second})
		want := []State{
			{Channel: "a", Held: 3, Oldest: began, Closed: time.Minute, Paced: true},
			{Channel: "b"},
		}
		if diff := cmp.Diff(want, l.States()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		next(t, l)
		want[0].Posting, want[0].Closed, want[0].Paced = true, 0, false
		if diff := cmp.Diff(want, l.States()); diff != "" {
			t.Errorf("with a turn (-want +got):\n%s", diff)
		}
	})
}
