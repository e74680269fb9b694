package consume

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func held(name string) *delivery { return &delivery{token: name, reply: "reply to " + name} }

func again(name string) *delivery {
	return &delivery{token: name, reply: "second reply to " + name, redelivered: true}
}

// full is a hand with so many deliveries in it, named 0, 1, ...
func full(capacity, n int) (*hand, []*delivery) {
	h := newHand(capacity)
	deliveries := make([]*delivery, n)
	for i := range deliveries {
		deliveries[i] = held(fmt.Sprint(i))
		h.add(deliveries[i])
	}
	return h, deliveries
}

func take(t *testing.T, h *hand, limit int) []string {
	t.Helper()
	taken, err := h.take(t.Context(), limit, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range taken {
		names = append(names, d.token)
	}
	return names
}

func TestAHandHasRoomForWhatIsReleased(t *testing.T) {
	h, deliveries := full(4, 3)
	if h.room() != 1 || h.size() != 3 {
		t.Errorf("room %d and size %d, expected 1 and 3", h.room(), h.size())
	}
	take(t, h, 4) // what is taken stays in hand
	if h.room() != 1 {
		t.Errorf("room %d after taking, expected 1", h.room())
	}
	h.release(deliveries[1])
	if h.room() != 2 {
		t.Errorf("room %d, expected 2", h.room())
	}
	h.release(deliveries[1], deliveries[0])
	h.release()
	if h.room() != 3 || h.size() != 1 {
		t.Errorf("room %d and size %d after releasing one twice, expected 3 and 1", h.room(), h.size())
	}
	if held, rest := h.rest(); held != 1 || !slices.Equal(rest, []string{"reply to 2"}) {
		t.Errorf("rest %v, expected the one that was not released", rest)
	}
}

// More than was asked for may arrive; then there is no room, and not less than none.
func TestAnOverfullHandHasNoRoom(t *testing.T) {
	if h, _ := full(2, 5); h.room() != 0 {
		t.Errorf("room %d, expected 0", h.room())
	}
}

func TestTakingKeepsTheOrderAndTheLimit(t *testing.T) {
	h, _ := full(8, 5)
	if diff := cmp.Diff([]string{"0", "1", "2"}, take(t, h, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3", "4"}, take(t, h, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTakingWaitsForTheFirstDeliveryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHand(8)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			h.add(held("a"))
		}()
		if names := take(t, h, 8); !slices.Equal(names, []string{"a"}) || time.Since(began) != time.Minute {
			t.Errorf("took %v after %s, expected a after a minute", names, time.Since(began))
		}
	})
}

func TestTakingFromAnEmptyHandEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHand(8)
		began := time.Now()
		if taken, err := h.take(t.Context(), 8, time.Second); taken != nil || err != nil || time.Since(began) != time.Second {
			t.Errorf("took %v, %v after %s, expected nothing after the second of idleness", taken, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.take(ctx, 8, time.Hour); err != context.DeadlineExceeded {
			t.Errorf("error %v, expected the context's", err)
		}
		go func() {
			time.Sleep(time.Second)
			h.close()
		}()
		if taken, err := h.take(t.Context(), 8, time.Hour); len(taken) != 0 || err != nil {
			t.Errorf("took %v, %v from a closed hand, expected nothing", taken, err)
		}
	})
}

func TestAClosedHandIsDoneWhenItsQueueIsEmpty(t *testing.T) {
	h, _ := full(8, 1)
	h.close()
	if h.done() {
		t.Error("done with a delivery in the queue")
	}
	take(t, h, 8)
	if !h.done() {
		t.Error("not done with nothing in the queue")
	}
}

// The server hands out again what it has lost patience with. If it is in hand still, it goes on with the newer
// acknowledgement subject, and is not queued twice.
func TestARedeliveryOfWhatIsInHandReplacesTheReply(t *testing.T) {
	h, deliveries := full(8, 2)
	h.add(again("1"))
	if h.size() != 2 || h.replyOf(deliveries[1]) != "second reply to 1" || h.replyOf(deliveries[0]) != "reply to 0" {
		t.Errorf("size %d with the replies %q and %q", h.size(), h.replyOf(deliveries[0]), h.replyOf(deliveries[1]))
	}
	take(t, h, 8)
	h.add(again("0"))
	if h.size() != 2 || h.replyOf(deliveries[0]) != "second reply to 0" {
		t.Errorf("size %d with the reply %q after it was taken", h.size(), h.replyOf(deliveries[0]))
	}
	h.release(deliveries...)
	h.add(again("0"))
	if names := take(t, h, 8); !slices.Equal(names, []string{"0"}) {
		t.Errorf("took %v, expected what was settled and comes again", names)
	}
}

// After a doubt anything may be a redelivery, whatever it says of itself, until all of before is settled.
func TestAfterADoubtWhatIsInHandIsRecognised(t *testing.T) {
	h, deliveries := full(8, 3)
	h.doubt()
	h.add(held("3"))
	h.add(&delivery{token: "1", reply: "new reply to 1"})
	if h.size() != 4 || h.replyOf(deliveries[1]) != "new reply to 1" {
		t.Errorf("size %d with the reply %q, expected 4 with the new one", h.size(), h.replyOf(deliveries[1]))
	}
	h.add(&delivery{token: "1", reply: "newer reply to 1"}) // still in doubt for the sake of 0 and 2
	if h.size() != 4 || h.replyOf(deliveries[1]) != "newer reply to 1" {
		t.Errorf("size %d with the reply %q, expected 4 with the newer one", h.size(), h.replyOf(deliveries[1]))
	}
	h.release(deliveries...)
	if h.older != 0 {
		t.Errorf("%d deliveries are in doubt, expected none", h.older)
	}
}

func TestWhatIsDisownedIsNotAcknowledged(t *testing.T) {
	h, deliveries := full(8, 2)
	h.disown()
	h.add(held("2"))
	if h.replyOf(deliveries[0]) != "" {
		t.Errorf("reply %q, expected none", h.replyOf(deliveries[0]))
	}
	now := time.Now()
	if replies := h.untouched(now, now); !slices.Equal(replies, []string{"reply to 2"}) {
		t.Errorf("to be kept alive: %v, expected 2 alone", replies)
	}
	if held, rest := h.rest(); held != 3 || !slices.Equal(rest, []string{"reply to 2"}) {
		t.Errorf("to be handed back: %v, expected 2 alone", rest)
	}
}

func TestDeliveriesAreKeptAliveOnceInTheTime(t *testing.T) {
	h := newHand(8)
	start := time.Now()
	for i, name := range []string{"a", "b"} {
		d := held(name)
		d.touched = start.Add(time.Duration(i) * time.Second)
		h.add(d)
	}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, test := range []struct {
		since, now int
		want       []string
	}{
		{0, 5, nil}, {1, 5, []string{"reply to a"}}, {2, 6, []string{"reply to b"}}, {5, 9, nil},
		{7, 11, []string{"reply to a", "reply to b"}},
	} {
		if diff := cmp.Diff(test.want, h.untouched(at(test.since), at(test.now))); diff != "" {
			t.Errorf("untouched since %d (-want +got):\n%s", test.since, diff)
		}
	}
}
