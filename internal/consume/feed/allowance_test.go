package feed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

func TestReturnedEventComesAfterItsDelay(t *testing.T) {
	l := newFixture(t, nil)
	s := l.source(8)
	l.publish(1)
	d := l.arrived(s, 1)[0]
	const delay = 700 * time.Millisecond
	began := time.Now()
	if !d.Later(delay) {
		t.Fatal("it was not handed back: " + s.WhyNotLater())
	}
	if s.inflight.size() != 0 || s.inflight.bytes != 0 {
		t.Errorf("%d deliveries with %d bytes are in flight, expected none", s.inflight.size(), s.inflight.bytes)
	}
	s.touch(time.Now(), 0) // does not concern it any more
	again := l.arrived(s, 1)[0]
	if waited := time.Since(began); waited < delay-50*time.Millisecond || waited > kit.Patience {
		t.Errorf("it came back after %s, expected %s", waited, delay)
	}
	if again == d || again.Token != d.Token || !again.Redelivered || again.Seq != d.Seq {
		t.Errorf("what came back is %+v, expected a new delivery of %+v", again, d)
	}
	kit.Check(t, s.Ack(again))
	kit.Eventually(t, "it is acknowledged", func() bool { return l.consumer().NumAckPending == 0 })
}

func init() { allowancePeriod = 50 * time.Millisecond }

// halfIsTaken reports whether nothing may be handed back because of MaxAckPending, and not because the server
// has not answered.
func halfIsTaken(s *Feed) bool {
	return strings.Contains(s.WhyNotLater(), "max_ack_pending")
}

// By each figure a replica takes a part of what is left, and where little is left one at a time: never more
// than half.
func TestTheAllowanceIsAPartOfWhatIsLeft(t *testing.T) {
	var a allowance
	a.bind(&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{MaxAckPending: 400, MaxDeliver: -1}}, 8)
	for pending, want := range map[int]int{0: 12, 100: 6, 184: 1, 199: 1, 200: 0, 300: 0} {
		a.update(pending, nil)
		got := 0
		for a.take() {
			got++
		}
		if got != want {
			t.Errorf("with %d of 200 in use %d are handed back by one figure, expected %d", pending, got, want)
		}
	}
}

// A figure from before a quiet time does not count: other replicas may have used all that was left then.
func TestAnOldFigureDoesNotCount(t *testing.T) {
	var a allowance
	a.bind(&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{MaxAckPending: 400, MaxDeliver: -1}}, 8)
	if !a.needsFigure() || a.inUse() {
		t.Error("there is a figure that nobody has asked for")
	}
	a.update(300, nil)
	if a.take() || !a.inUse() {
		t.Error("one was handed back, or the server is not asked again after one was not")
	}
	a.update(0, nil)
	if !a.take() || !a.inUse() {
		t.Error("none was handed back, or the server is not asked again after one was")
	}
	a.update(12, nil)
	if a.inUse() || !a.needsFigure() || a.take() {
		t.Error("the figure of a quiet time still counts")
	}
}

// What is handed back must leave half of the consumer's MaxAckPending to everything else, however many
// replicas do so at once.
func TestHalfOfMaxAckPendingIsHandedBackAtMost(t *testing.T) {
	l := newFixture(t, nil)
	replicas := []*Feed{l.source(8), l.source(8), l.source(8)}
	l.publish(600)
	handed := make([]int, len(replicas))
	held := make([][]*Delivery, len(replicas))
	kit.Eventually(t, "none may be handed back any more", func() bool {
		open := false
		for i, s := range replicas {
			taken, err := s.inflight.take(t.Context(), 8, 10*time.Millisecond)
			kit.Check(t, err)
			before := len(held[i]) + len(taken)
			held[i] = slices.DeleteFunc(append(held[i], taken...), func(d *Delivery) bool { return d.Later(time.Hour) })
			handed[i] += before - len(held[i])
			open = open || !halfIsTaken(s)
		}
		return !open && l.consumer().NumAckPending >= 200
	})
	// What is in flight counts as well: 24 at most. Each replica may take one more by a figure that the
	// others have used, too.
	sum := handed[0] + handed[1] + handed[2]
	if slices.Min(handed) == 0 || sum > 200+2*len(replicas) || sum < 200-24 {
		t.Errorf("the replicas have handed back %v, expected some each, and together half of 400 with what is in flight", handed)
	}
}

// When others have ended, more may be handed back, and what was said of it goes by itself.
func TestEventsAreHandedBackAgainWhenThereIsRoom(t *testing.T) {
	l := newFixture(t, func(config *jetstream.ConsumerConfig) { config.MaxAckPending = 20 })
	holder := l.source(20)
	l.publish(15)
	held := l.arrived(holder, 15)
	s := l.source(8)
	l.publish(1)
	kit.Eventually(t, "the last has arrived", func() bool { return s.Held()+holder.Held() == 16 })
	d := l.arrived(map[bool]*Feed{true: s, false: holder}[s.Held() == 1], 1)[0]
	if d.Later(time.Hour) || !halfIsTaken(d.feed) {
		t.Fatalf("it was handed back with 16 of 20 in use, or for no reason: %q", d.feed.WhyNotLater())
	}
	for _, d := range held {
		kit.Check(t, d.feed.Ack(d))
	}
	kit.Eventually(t, "there is room", func() bool { return d.feed.WhyNotLater() == "" })
	kit.Eventually(t, "it is handed back", func() bool { return d.Later(time.Hour) })
}

func TestNothingIsHandedBackWhereItCouldBeLost(t *testing.T) {
	l := newFixture(t, func(config *jetstream.ConsumerConfig) { config.MaxDeliver = 3 })
	s := l.source(4)
	l.publish(1)
	d := l.arrived(s, 1)[0]
	if d.Later(time.Millisecond) {
		t.Error("it was handed back, although max_deliver bounds how often it is delivered")
	}
	if s.inflight.size() != 1 {
		t.Error("it is not in flight any more")
	}
	if reason := s.WhyNotLater(); !strings.Contains(reason, "max_deliver") {
		t.Errorf("the reason is %q, expected max_deliver", reason)
	}
}

// An event whose stream was deleted has no server to go back to, and neither has one whose connection is
// gone.
func TestNothingIsHandedBackWithoutAServer(t *testing.T) {
	l := newFixture(t, nil)
	s := l.source(4)
	l.publish(2)
	all := l.arrived(s, 2)
	s.inflight.forgetReplies()
	if all[0].Later(time.Millisecond) {
		t.Error("it was handed back without a reply subject")
	}
	all[1].reply = "$JS.ACK.x"
	s.allowance.update(0, nats.ErrTimeout)
	if all[1].Later(time.Millisecond) {
		t.Error("it was handed back although it is not known how many are")
	}
	if reason := s.WhyNotLater(); !strings.Contains(reason, "not known") {
		t.Errorf("the reason is %q", reason)
	}
}
