package lanes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// takeAll takes all excess and lists it.
func takeAll(l *Lanes[string]) (items []string) {
	for {
		_, item, found := l.TakeExcess()
		if !found {
			return items
		}
		items = append(items, item.Value)
	}
}

func narrow(items int) *Lanes[string] {
	return New[string](8, Size{items, 1 << 20}, backoffs, "a", "b", "c")
}

// stateOf is what a channel's lane holds.
func stateOf(l *Lanes[string], channel string) State { return l.lane(channel).state(time.Now()) }

// closeLane closes a lane, so that it is slow.
func closeLane(t *testing.T, l *Lanes[string], channel string) {
	t.Helper()
	turn := next(t, l)
	turn.PauseChannel(time.Hour)
	turn.Return(0)
	if s := stateOf(l, channel); s.Closed == 0 {
		t.Fatalf("lane %s is open", channel)
	}
}

func TestASlowLaneGivesBackWhatIsTooMuch(t *testing.T) {
	l := narrow(4)
	add(l, "a", 5)
	if got := takeAll(l); got != nil {
		t.Errorf("%v are taken from a lane that is not slow", got)
	}
	closeLane(t, l, "a")
	add(l, "b", 2)
	if diff := cmp.Diff([]string{"a4", "a3", "a2"}, takeAll(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, _ := available(l)
	expect(t, "left of the other lane", got, "b0 b1")
}

func TestALaneIsSlowWhenItsFirstItemWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := narrow(1)
		add(l, "a", 3)
		time.Sleep(slowAfter + time.Millisecond)
		if diff := cmp.Diff([]string{"a2", "a1"}, takeAll(l)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Who gets an item that had a turn would not know how that ended.
func TestWhatHasHadATurnStays(t *testing.T) {
	l := narrow(1)
	add(l, "a", 3)
	_, turns := available(l)
	for _, turn := range turns[:2] {
		turn.PauseChannel(time.Hour)
		turn.Return(0)
	}
	if got := takeAll(l); got != nil {
		t.Errorf("%v are taken, although they have had a turn", got)
	}
}

func TestAPacedLaneIsSlow(t *testing.T) {
	l := narrow(1)
	add(l, "a", 2)
	turn := next(t, l)
	turn.Pace(time.Minute)
	turn.Return(0)
	if diff := cmp.Diff([]string{"a1"}, takeAll(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What all lanes hold together is bounded too; the longest gives first.
func TestSlowLanesTogetherKeepTheirShare(t *testing.T) {
	l := narrow(6)
	add(l, "a", 5)
	closeLane(t, l, "a")
	add(l, "b", 3)
	closeLane(t, l, "b")
	if diff := cmp.Diff([]string{"a4", "a3"}, takeAll(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestASharesBytesCount(t *testing.T) {
	l := New[string](8, Size{100, 10}, backoffs)
	l.Add("a", Item[string]{Value: "small", Bytes: 1})
	l.Add("a", Item[string]{Value: "large", Bytes: 10})
	closeLane(t, l, "a")
	if diff := cmp.Diff([]string{"large"}, takeAll(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := stateOf(l, "a"); s.Held != 1 {
		t.Errorf("%d items left, expected 1", s.Held)
	}
}

func TestWhatIsPutBackIsTheLastAgain(t *testing.T) {
	l := narrow(1)
	add(l, "a", 3)
	closeLane(t, l, "a")
	channel, item, _ := l.TakeExcess()
	l.PutBack(channel, item)
	if diff := cmp.Diff([]string{"a2", "a1"}, takeAll(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is parked counts as waiting until it comes back.
func TestTheStateOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := narrow(2)
		add(l, "a", 4)
		closeLane(t, l, "a")
		for _, d := range []time.Duration{time.Minute, time.Minute, time.Hour} {
			channel, item, found := l.TakeExcess()
			if !found {
				break
			}
			l.Parked(channel, Item[string]{Since: item.Since.Add(-d)}, d)
		}
		time.Sleep(time.Second)
		want := State{Channel: "a", Held: 2, Parked: 2, Oldest: began.Add(-time.Minute), Closed: time.Hour - time.Second}
		if diff := cmp.Diff(want, stateOf(l, "a")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		if s := l.States()[0]; s.Waiting() != 2 || !s.Oldest.Equal(began) {
			t.Errorf("%d waiting since %s, expected 2 since %s", s.Waiting(), s.Oldest, began)
		}
	})
}
