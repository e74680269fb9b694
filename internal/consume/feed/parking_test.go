package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

// lot is a server with a stream and a consumer, and the sources of the replicas that read it.
type lot struct {
	*testing.T
	js  jetstream.JetStream
	url string
}

func newLot(t *testing.T, change func(*jetstream.ConsumerConfig)) *lot {
	t.Helper()
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	testkit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	l := &lot{T: t, js: testkit.JetStream(t, server.URL()), url: server.URL()}
	_, err = l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy})
	testkit.Check(t, err)
	config := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: -1, MaxAckPending: 400}
	if change != nil {
		change(&config)
	}
	_, err = l.js.CreateConsumer(t.Context(), "S", config)
	testkit.Check(t, err)
	return l
}

// source starts a replica's source with room for so many deliveries.
func (l *lot) source(capacity int) *Feed {
	l.Helper()
	connection, err := nats.Connect(l.url)
	testkit.Check(l.T, err)
	s, err := New(Settings{
		Connection: Connection{Conn: connection}, Stream: "S", Consumer: "C", Subject: "s.>",
		Capacity: capacity, Budget: DefaultBudget, MayFetch: always, Tracker: quiet(), Log: zap.NewNop(),
	})
	testkit.Check(l.T, err)
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	l.Cleanup(func() {
		cancel()
		testkit.Check(l.T, <-ended)
		connection.Close()
	})
	testkit.Eventually(l.T, "the source is bound", s.IsBound)
	return s
}

// quiet is a tracker that logs nothing.
func quiet() *availability.Tracker {
	return availability.New(zap.NewNop(), func(availability.Dependency) int { return 0 })
}

func (l *lot) publish(n int) {
	l.Helper()
	for i := range n {
		_, err := l.js.Publish(l.Context(), "s.a", fmt.Append(nil, i))
		testkit.Check(l.T, err)
	}
}

// arrived takes n deliveries as they arrive.
func (l *lot) arrived(s *Feed, n int) []*Delivery {
	l.Helper()
	var all []*Delivery
	for len(all) < n {
		taken, err := s.inflight.take(l.Context(), n-len(all), testkit.Patience)
		testkit.Check(l.T, err)
		if len(taken) == 0 {
			l.Fatalf("%d deliveries have arrived, expected %d", len(all), n)
		}
		all = append(all, taken...)
	}
	return all
}

func (l *lot) consumer() *jetstream.ConsumerInfo {
	l.Helper()
	consumer, err := l.js.Consumer(l.Context(), "S", "C")
	testkit.Check(l.T, err)
	return consumer.CachedInfo()
}

func TestAParkedEventLeavesAndComesBackAfterItsDelay(t *testing.T) {
	l := newLot(t, nil)
	s := l.source(8)
	l.publish(1)
	d := l.arrived(s, 1)[0]
	const delay = 700 * time.Millisecond
	began := time.Now()
	if !d.Later(delay) {
		t.Fatal("it was not parked")
	}
	if s.inflight.size() != 0 || s.inflight.bytes != 0 {
		t.Errorf("%d deliveries with %d bytes are in flight, expected none", s.inflight.size(), s.inflight.bytes)
	}
	s.touch(time.Now(), 0) // does not concern it any more
	again := l.arrived(s, 1)[0]
	if waited := time.Since(began); waited < delay-50*time.Millisecond || waited > 10*delay {
		t.Errorf("it came back after %s, expected %s", waited, delay)
	}
	if again == d || again.Token != d.Token || !again.Redelivered || again.Seq != d.Seq {
		t.Errorf("what came back is %+v, expected a new delivery of %+v", again, d)
	}
	testkit.Check(t, again.Ack())
	testkit.Eventually(t, "it is acknowledged", func() bool { return l.consumer().NumAckPending == 0 })
}

// halfIsTaken reports whether nothing may be parked because of MaxAckPending, and not because the server has not answered in time.
func halfIsTaken(s *Feed) bool {
	return strings.Contains(s.WhyNotLater(), "max_ack_pending")
}

// What is parked must leave half of the consumer's MaxAckPending to everything else, however many replicas park at once.
func TestHalfOfMaxAckPendingIsParkedAtMost(t *testing.T) {
	l := newLot(t, nil)
	replicas := []*Feed{l.source(8), l.source(8), l.source(8)}
	l.publish(600)
	parked := make([]int, len(replicas))
	testkit.Eventually(t, "none may park any more", func() bool {
		open := false
		for i, s := range replicas {
			taken, err := s.inflight.take(t.Context(), 8, 10*time.Millisecond)
			testkit.Check(t, err)
			for _, d := range taken {
				if d.Later(time.Hour) {
					parked[i]++
				}
			}
			open = open || !halfIsTaken(s)
		}
		return !open
	})
	// What is in flight counts as well: 24 at most.
	sum := parked[0] + parked[1] + parked[2]
	if slices.Min(parked) == 0 || sum > 200 || sum < 200-24-parkingPart {
		t.Errorf("the replicas have parked %v, expected some each, and together half of 400 with what is in flight", parked)
	}
}

// One replica goes on when there is room again.
func TestParkingGoesOnWhenThereIsRoom(t *testing.T) {
	l := newLot(t, nil)
	s := l.source(8)
	l.publish(250)
	parked := 0
	for !halfIsTaken(s) {
		d := l.arrived(s, 1)[0]
		testkit.Eventually(t, "it is parked, or none may be", func() bool {
			if !d.Later(10 * time.Second) {
				return halfIsTaken(s)
			}
			parked++
			return true
		})
	}
	if parked > 200 || parked < 200-8-parkingPart {
		t.Errorf("%d are parked, expected about half of 400", parked)
	}
	// They come back; what is acknowledged makes room.
	acknowledged := 0
	testkit.Eventually(t, "more may be parked", func() bool {
		taken, err := s.inflight.take(t.Context(), 4, 10*time.Millisecond)
		testkit.Check(t, err)
		for _, d := range taken {
			testkit.Check(t, d.Ack())
		}
		acknowledged += len(taken)
		return s.WhyNotLater() == ""
	})
	if acknowledged == 0 {
		t.Error("nothing was acknowledged, and there is room")
	}
}

func TestNothingIsParkedWhereItCouldBeLost(t *testing.T) {
	l := newLot(t, func(config *jetstream.ConsumerConfig) { config.MaxDeliver = 3 })
	s := l.source(4)
	l.publish(1)
	d := l.arrived(s, 1)[0]
	if d.Later(time.Millisecond) {
		t.Error("it was parked, although max_deliver bounds how often it is delivered")
	}
	if s.inflight.size() != 1 {
		t.Error("it is not in flight any more")
	}
	if reason := s.WhyNotLater(); !strings.Contains(reason, "max_deliver") {
		t.Errorf("the reason is %q, expected max_deliver", reason)
	}
}

// An event whose stream was deleted has no server to go back to, and neither has one whose connection is gone.
func TestNothingIsParkedWithoutAServer(t *testing.T) {
	l := newLot(t, nil)
	s := l.source(4)
	l.publish(2)
	all := l.arrived(s, 2)
	s.inflight.forgetReplies()
	if all[0].Later(time.Millisecond) {
		t.Error("it was parked without a reply subject")
	}
	all[1].reply = "$JS.ACK.x"
	s.parking.mu.Lock()
	s.parking.asked, s.parking.failed = time.Now(), nats.ErrTimeout
	s.parking.mu.Unlock()
	if all[1].Later(time.Millisecond) {
		t.Error("it was parked although it is not known how many are")
	}
	if reason := s.WhyNotLater(); !strings.Contains(reason, "not known") {
		t.Errorf("the reason is %q", reason)
	}
}
