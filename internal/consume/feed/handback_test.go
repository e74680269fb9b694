package feed

import (
	"slices"
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
		t.Fatal("it was not handed back")
	}
	if s.inflight.size() != 0 || s.inflight.bytes != 0 {
		t.Errorf("%d deliveries with %d bytes are in flight, expected none", s.inflight.size(), s.inflight.bytes)
	}
	s.touch(time.Now(), 0) // no longer concerns the event
	again := l.arrived(s, 1)[0]
	if waited := time.Since(began); waited < delay-50*time.Millisecond || waited > kit.Patience {
		t.Errorf("it came back after %s, expected %s", waited, delay)
	}
	if again == d || again.Token != d.Token || !again.Redelivered.Load() || again.Seq != d.Seq {
		t.Errorf("what came back is %+v, expected a new delivery of %+v", again, d)
	}
	kit.Check(t, s.Ack(again))
	kit.Eventually(t, "it is acknowledged", func() bool { return l.consumer().NumAckPending == 0 })
}

// Reports that nothing can receive would displace acknowledgements in nats.go's buffer.
func TestNothingIsReportedWithoutAConnection(t *testing.T) {
	connection, err := nats.Connect("nats://"+kit.FreeAddr(t), nats.RetryOnFailedConnect(true))
	kit.Check(t, err)
	defer connection.Close()
	s := &Feed{
		settings: Settings{Connection: Connection{Conn: connection}}, inflight: newInflight(8, DefaultBudget),
	}
	s.inflight.add(arrival("a"), 0)
	now := time.Now()
	s.touch(now, 0)
	if due := s.inflight.untouched(now, now); len(due) != 1 {
		t.Errorf("%d deliveries are due for a report, expected the one that nobody has heard of", len(due))
	}
	if queued, err := connection.Buffered(); err != nil || queued > 0 {
		t.Errorf("%d bytes are queued, %v", queued, err)
	}
}

func init() { allowancePeriod = 50 * time.Millisecond }

// For each lookup a replica takes a share of the rest, never more than half, and one event if little is
// left.
func TestAllowanceIsAShareOfTheRest(t *testing.T) {
	var a allowance
	a.bind(jetstream.ConsumerConfig{MaxAckPending: 400, MaxDeliver: -1}, 8)
	if !a.isOutdated() {
		t.Error("there is a count that was never looked up")
	}
	for pending, want := range map[int]int{0: 12, 100: 6, 184: 1, 199: 1, 200: 0, 300: 0} {
		a.update(pending)
		got := 0
		for a.take() {
			got++
		}
		if got != want {
			t.Errorf("with %d of 200 in use %d are handed back by one count, expected %d", pending, got, want)
		}
		if much := want > 1; a.isOutdated() != much {
			t.Errorf("with %d of 200 in use the server is asked again at once: %v", pending, !much)
		}
	}
	// Other replicas may have used up the rest since the lookup.
	a.looked = a.looked.Add(-allowancePeriod)
	if !a.isOutdated() {
		t.Error("an old count still counts")
	}
	if a.bind(jetstream.ConsumerConfig{MaxAckPending: -1, MaxDeliver: -1}, 8); a.limit != 64 {
		t.Errorf("%d may be handed back, expected half of 16 times the capacity", a.limit)
	}
	if a.bind(jetstream.ConsumerConfig{MaxAckPending: 400, MaxDeliver: 3}, 8); a.isOutdated() || a.take() {
		t.Error("an event may be handed back although max_deliver bounds its deliveries")
	}
}

// Events handed back leave half of MaxAckPending to everything else, however many replicas hand back at
// once.
func TestHandBackUsesHalfOfMaxAckPending(t *testing.T) {
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
			held[i] = slices.DeleteFunc(append(held[i], taken...), func(d *Delivery) bool {
				return d.Later(time.Hour)
			})
			handed[i] += before - len(held[i])
			open = open || len(held[i]) < before
		}
		return !open && l.consumer().NumAckPending >= 200
	})
	// Up to 24 events in flight count too. Each replica may exceed the limit by one, based on a count that
	// the others have used as well.
	sum := handed[0] + handed[1] + handed[2]
	if slices.Min(handed) == 0 || sum > 200+2*len(replicas) || sum < 200-24 {
		t.Errorf("the workers have handed back %v, expected some each, and together half of 400 with what is in flight",
			handed)
	}
}

// An event of a deleted stream cannot be handed back, and neither can any event without a connection.
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
	s.allowance.update(200)
	s.allowance.looked = time.Now().Add(time.Hour)
	if all[1].Later(time.Millisecond) {
		t.Error("it was handed back although half of max_ack_pending is in use")
	}
	s.isBound.Store(false)
	if all[1].Later(time.Millisecond) {
		t.Error("it was handed back while no consumer is bound")
	}
	if s.inflight.size() != 2 {
		t.Errorf("%d deliveries are in flight, expected both", s.inflight.size())
	}
}

// A progress report that reaches the server after the hand-back would cancel its delay.
func TestHandBackAndProgressTakeTurns(t *testing.T) {
	l := newFixture(t, nil)
	s := l.source(4)
	l.publish(1)
	d := l.arrived(s, 1)[0]
	for name, do := range map[string]func(){
		"a report":    func() { s.touch(time.Now(), -time.Hour) },
		"a hand-back": func() { d.Later(time.Hour) },
	} {
		ended := make(chan struct{})
		s.reporting.Lock()
		go func() {
			do()
			close(ended)
		}()
		select {
		case <-ended:
			t.Errorf("%s does not wait", name)
		case <-time.After(200 * time.Millisecond):
		}
		s.reporting.Unlock()
		<-ended
	}
}
