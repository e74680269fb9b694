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
	return &Delivery{Token: name, reply: "second reply to " + name, Redelivered: true}
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

// roomFor returns the number of messages that fit.
func (f *inflight) roomFor() int { return f.free(room{}).messages }

// replyOf returns the acknowledgement subject of a delivery, or "".
func (f *inflight) replyOf(d *Delivery) string { return strings.Join(f.repliesOf(d), "") }

func TestReleaseFreesRoom(t *testing.T) {
	f, deliveries := full(4, 3)
	if f.roomFor() != 1 || f.size() != 3 {
		t.Errorf("room %d and size %d, expected 1 and 3", f.roomFor(), f.size())
	}
	take(t, f, 4) // deliveries taken stay in flight
	if f.roomFor() != 1 {
		t.Errorf("room %d after taking, expected 1", f.roomFor())
	}
	f.release(deliveries[1])
	if f.roomFor() != 2 {
		t.Errorf("room %d, expected 2", f.roomFor())
	}
	f.release(deliveries[1], deliveries[0])
	f.release()
	if f.roomFor() != 3 || f.size() != 1 {
		t.Errorf("room %d and size %d after releasing one twice, expected 3 and 1", f.roomFor(), f.size())
	}
	if rest := f.drain(); !slices.Equal(rest, []string{"reply to 2"}) {
		t.Errorf("drained %v, expected the one that was not released", rest)
	}
}

func TestBytesAreChargedOnceAndGivenBack(t *testing.T) {
	f := newInflight(8, 1000)
	roomBytes := func() int64 { return f.free(room{1, f.reserved}).bytes }
	f.reserve(600)
	first, second := arrival("a"), arrival("b")
	first.Cost, second.Cost = 200, 300
	f.add(first, 300)
	f.add(second, 0)
	if roomBytes() != 500 {
		t.Errorf("room for %d bytes, expected 500", roomBytes())
	}
	redelivered := again("a")
	redelivered.Cost = 200
	f.reserve(100)
	f.add(redelivered, 0)
	if roomBytes() != 500 {
		t.Errorf("room for %d bytes after a redelivery, expected 500", roomBytes())
	}
	f.release(first)
	f.release(first)
	if roomBytes() != 700 || f.peak != 600 {
		t.Errorf("room for %d bytes and at most %d used, expected 700 and 600", roomBytes(), f.peak)
	}
	f.drain()
	if roomBytes() != 1000 {
		t.Errorf("room for %d bytes when nothing is in flight, expected all", roomBytes())
	}
}

// More messages than requested may arrive.
func TestRoomIsNeverNegative(t *testing.T) {
	if f, _ := full(2, 5); f.roomFor() != 0 {
		t.Errorf("room %d, expected 0", f.roomFor())
	}
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

func TestTakeWaitsOnlyForTheFirstDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(8, DefaultBudget)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			f.add(arrival("a"), 0)
		}()
		if names := take(t, f, 8); !slices.Equal(names, []string{"a"}) || time.Since(began) != time.Minute {
			t.Errorf("took %v after %s, expected a after a minute", names, time.Since(began))
		}
	})
}

func TestTakeFromEmptyQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInflight(8, DefaultBudget)
		began := time.Now()
		taken, err := f.take(t.Context(), 8, time.Second)
		if taken != nil || err != nil || time.Since(began) != time.Second {
			t.Errorf("took %v, %v after %s, expected nothing after the second of idleness",
				taken, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.take(ctx, 8, time.Hour); err != context.DeadlineExceeded {
			t.Errorf("error %v, expected the context's", err)
		}
		go func() {
			time.Sleep(time.Second)
			f.close()
		}()
		if taken, err := f.take(t.Context(), 8, time.Hour); len(taken) != 0 || err != nil {
			t.Errorf("took %v, %v from a closed set, expected nothing", taken, err)
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

// After AckWait the server redelivers. An event still in flight keeps its place and uses the newer
// acknowledgement subject.
func TestRedeliveryReplacesTheReply(t *testing.T) {
	f, deliveries := full(8, 2)
	f.add(again("1"), 0)
	if f.size() != 2 || f.replyOf(deliveries[1]) != "second reply to 1" || f.replyOf(deliveries[0]) != "reply to 0" {
		t.Errorf("size %d with the replies %q and %q", f.size(), f.replyOf(deliveries[0]), f.replyOf(deliveries[1]))
	}
	take(t, f, 8)
	f.add(again("0"), 0)
	if f.size() != 2 || f.replyOf(deliveries[0]) != "second reply to 0" {
		t.Errorf("size %d with the reply %q after it was taken", f.size(), f.replyOf(deliveries[0]))
	}
	f.release(deliveries...)
	f.add(again("0"), 0)
	if names := take(t, f, 8); !slices.Equal(names, []string{"0"}) {
		t.Errorf("took %v, expected what was settled and is delivered again", names)
	}
}

// A recreated consumer delivers held events as first deliveries.
func TestHeldEventIsRecognisedWithoutADeliveryCount(t *testing.T) {
	f, deliveries := full(8, 3)
	f.add(&Delivery{Token: "1", reply: "new reply to 1"}, 0)
	if f.size() != 3 || f.replyOf(deliveries[1]) != "new reply to 1" {
		t.Errorf("size %d with the reply %q, expected 3 with the new one", f.size(), f.replyOf(deliveries[1]))
	}
	if names := take(t, f, 8); len(names) != 3 {
		t.Errorf("took %v, expected nothing twice", names)
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
	if diff := cmp.Diff(want, f.drain()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
		"enough arrives":            {8, 4, 1, 5, nil, 3 * time.Millisecond},
		"too little arrives":        {8, 4, 1, 2, nil, patience},
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
				synctest.Wait()
				time.Sleep(time.Minute) // the rest arrives
				want := min(test.queued+test.arrive, test.capacity)
				if taken := take(t, f, 100); len(taken) != want {
					t.Errorf("%d are taken afterwards, expected %d", len(taken), want)
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
