package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func arrival(name string) *Delivery { return &Delivery{Token: name, reply: "reply to " + name} }

func again(name string) *Delivery {
	d := &Delivery{Token: name, reply: "second reply to " + name}
	d.Redelivered.Store(true)
	return d
}

// full returns a set with n deliveries, named 0, 1, and so on.
func full(capacity, n int) (*inflight, []*Delivery) {
	f := newInflight(capacity, DefaultBudget)
	deliveries := make([]*Delivery, n)
	for i := range deliveries {
		deliveries[i] = arrival(fmt.Sprint(i))
		f.add(deliveries[i], 0)
	}
	return f, deliveries
}

func take(t *testing.T, f *inflight, limit int) []string {
	t.Helper()
	taken, err := f.take(t.Context(), limit, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range taken {
		names = append(names, d.Token)
	}
	return names
}

// replyOf returns the acknowledgement subject of a delivery, or "".
func (f *inflight) replyOf(d *Delivery) string { return strings.Join(f.repliesOf(d), "") }

func TestRoomInMessages(t *testing.T) {
	f, deliveries := full(4, 3)
	expect := func(when string, want int) {
		t.Helper()
		if got := f.free(room{}).messages; got != want {
			t.Errorf("%s: room for %d, expected %d", when, got, want)
		}
	}
	take(t, f, 4)
	expect("deliveries taken stay in flight", 1)
	f.release(deliveries[1])
	expect("one is released", 2)
	f.release(deliveries[1], deliveries[0])
	expect("one is released twice", 3)
	if rest := f.drain(); !slices.Equal(rest, []string{"reply to 2"}) {
		t.Errorf("drained %v, expected the one that was not released", rest)
	}
	f, _ = full(2, 5)
	expect("more than requested has arrived", 0)
}

func TestRoomInBytes(t *testing.T) {
	f := newInflight(8, 1000)
	expect := func(when string, want int64) {
		t.Helper()
		if got := f.free(room{1, f.reserved}).bytes; got != want {
			t.Errorf("%s: room for %d bytes, expected %d", when, got, want)
		}
	}
	f.reserve(600)
	first, second, redelivered := arrival("a"), arrival("b"), again("a")
	first.Bytes, second.Bytes, redelivered.Bytes = 200, 300, 200
	f.add(first, 300)
	f.add(second, 0)
	expect("two have arrived", 500)
	f.add(redelivered, 0)
	expect("one is redelivered", 500)
	f.release(first)
	f.release(first)
	expect("one is released twice", 700)
	if f.peak != 600 {
		t.Errorf("at most %d bytes were used, expected 600", f.peak)
	}
	f.drain()
	expect("nothing is in flight", 1000)
}

func TestTakeKeepsOrderAndLimit(t *testing.T) {
	f, _ := full(8, 5)
	if diff := cmp.Diff([]string{"0", "1", "2"}, take(t, f, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3", "4"}, take(t, f, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTakeWaitsForTheFirstDelivery(t *testing.T) {
	for name, test := range map[string]struct {
		then func(*inflight)
		want []string
		took time.Duration
	}{
		"one arrives":              {func(f *inflight) { f.add(arrival("a"), 0) }, []string{"a"}, time.Minute},
		"nothing arrives":          {func(*inflight) {}, nil, time.Hour},
		"nothing more will arrive": {(*inflight).close, nil, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newInflight(8, DefaultBudget)
			began := time.Now()
			time.AfterFunc(time.Minute, func() { test.then(f) })
			names := take(t, f, 8)
			if took := time.Since(began); !slices.Equal(names, test.want) || took != test.took {
				t.Errorf("%s: took %v after %s, expected %v after %s", name, names, took, test.want, test.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := newInflight(8, DefaultBudget).take(ctx, 8, time.Hour); err != context.DeadlineExceeded {
			t.Errorf("error %v, expected the context's", err)
		}
	})
}

func TestClosedSetIsDoneOnceEmpty(t *testing.T) {
	f, _ := full(8, 1)
	f.close()
	if f.done() {
		t.Error("done with a delivery in the queue")
	}
	take(t, f, 8)
	if !f.done() {
		t.Error("not done with nothing in the queue")
	}
}

// After AckWait the server redelivers, and a recreated consumer delivers held events as first deliveries. An
// event still in flight keeps its place and uses the newer acknowledgement subject.
func TestRedeliveryReplacesTheReply(t *testing.T) {
	f, deliveries := full(8, 2)
	f.add(again("1"), 0)
	take(t, f, 8)
	f.add(&Delivery{Token: "0", reply: "new reply to 0"}, 0)
	if first, second := f.replyOf(deliveries[0]), f.replyOf(deliveries[1]); f.size() != 2 ||
		first != "new reply to 0" || second != "second reply to 1" {
		t.Errorf("size %d with the replies %q and %q", f.size(), first, second)
	}
	if !deliveries[0].Redelivered.Load() || !deliveries[1].Redelivered.Load() {
		t.Error("a held delivery is not marked as redelivered, and another worker may have charged its event")
	}
	f.release(deliveries...)
	f.add(again("0"), 0)
	if names := take(t, f, 8); !slices.Equal(names, []string{"0"}) {
		t.Errorf("took %v, expected what was settled and is delivered again", names)
	}
}

// A recreated stream reuses the sequence numbers of the old one.
func TestEventsOfTwoStreamsWithOneSequence(t *testing.T) {
	f := newInflight(8, DefaultBudget)
	old, young := &Delivery{Token: "1.a", Seq: 1, reply: "old"}, &Delivery{Token: "1.b", Seq: 1, reply: "young"}
	f.add(old, 0)
	f.forgetReplies()
	f.add(young, 0)
	f.release(old)
	if replies := f.drain(); !slices.Equal(replies, []string{"young"}) {
		t.Errorf("%v, expected that the event of the new stream is still held", replies)
	}
}

// The server redelivers events in the order in which they are handed back.
func TestDrainKeepsStreamOrder(t *testing.T) {
	f := newInflight(100, DefaultBudget)
	var want []string
	for i := range 100 {
		name := fmt.Sprint(i)
		f.add(&Delivery{Token: name, Seq: uint64(i), reply: name}, 0)
		want = append(want, name)
	}
	if got := f.drain(); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

func TestEventsOfADeletedStreamAreNotAcknowledged(t *testing.T) {
	f, deliveries := full(8, 2)
	f.forgetReplies()
	f.add(arrival("2"), 0)
	if f.replyOf(deliveries[0]) != "" {
		t.Errorf("reply %q, expected none", f.replyOf(deliveries[0]))
	}
	now := time.Now()
	if replies := f.untouched(now, now); !slices.Equal(replies, []string{"reply to 2"}) {
		t.Errorf("to be kept alive: %v, expected 2 alone", replies)
	}
	if rest := f.drain(); !slices.Equal(rest, []string{"reply to 2"}) {
		t.Errorf("to be returned: %v, expected 2 alone", rest)
	}
}

func TestKeepAliveOncePerInterval(t *testing.T) {
	f := newInflight(8, DefaultBudget)
	start := time.Now()
	for i, name := range []string{"a", "b"} {
		d := arrival(name)
		d.touched = start.Add(time.Duration(i) * time.Second)
		f.add(d, 0)
	}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, test := range []struct {
		since, now int
		want       []string
	}{
		{0, 5, nil}, {1, 5, []string{"reply to a"}}, {2, 6, []string{"reply to b"}}, {5, 9, nil},
		{7, 11, []string{"reply to a", "reply to b"}},
	} {
		replies := f.untouched(at(test.since), at(test.now))
		slices.Sort(replies)
		if diff := cmp.Diff(test.want, replies); diff != "" {
			t.Errorf("untouched since %d (-want +got):\n%s", test.since, diff)
		}
	}
}

func TestGather(t *testing.T) {
	const patience = 25 * time.Millisecond
	for name, test := range map[string]struct {
		capacity, wanted, queued int // queued beforehand
		arrive                   int // one per millisecond
		then                     func(*inflight)
		took                     time.Duration
	}{
		"enough is there":           {8, 2, 2, 0, nil, 0},
		"enough arrives":            {8, 4, 1, 3, nil, 3 * time.Millisecond},
		"nothing arrives":           {8, 4, 0, 0, nil, patience},
		"there is room for no more": {2, 4, 1, 1, nil, time.Millisecond},
		"nothing more will arrive":  {8, 4, 1, 1, (*inflight).close, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := full(test.capacity, test.queued)
				began := time.Now()
				go func() {
					for i := range test.arrive {
						time.Sleep(time.Millisecond)
						f.add(arrival(fmt.Sprint("later ", i)), 0)
					}
					if test.then != nil {
						test.then(f)
					}
				}()
				f.gather(t.Context(), test.wanted, patience)
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, expected %s", took, test.took)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if newInflight(8, DefaultBudget).gather(ctx, 4, patience); time.Since(began) != time.Millisecond {
			t.Errorf("it took %s, expected that the end of the context ends it", time.Since(began))
		}
	})
}
