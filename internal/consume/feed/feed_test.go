package feed

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/devstack"
	"notifier/test/kit"
)

// fixture is a server with a stream and a consumer, and the feeds of the replicas that read it.
type fixture struct {
	*testing.T
	js  jetstream.JetStream
	url string
}

func newFixture(t *testing.T, change func(*jetstream.ConsumerConfig)) *fixture {
	t.Helper()
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	l := &fixture{T: t, js: kit.JetStream(t, server.URL()), url: server.URL()}
	_, err = l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy})
	kit.Check(t, err)
	config := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: -1, MaxAckPending: 400}
	if change != nil {
		change(&config)
	}
	_, err = l.js.CreateConsumer(t.Context(), "S", config)
	kit.Check(t, err)
	return l
}

// source starts a replica's feed with room for so many deliveries.
func (l *fixture) source(capacity int) *Feed {
	l.Helper()
	s, _ := l.start(capacity, finishQuiet)
	return s
}

// start is source with a function that ends the feed.
func (l *fixture) start(capacity int, patience time.Duration) (s *Feed, end func()) {
	l.Helper()
	connection, err := nats.Connect(l.url)
	kit.Check(l.T, err)
	s, err = New(Settings{
		Connection: Connection{Conn: connection}, Stream: "S", Consumer: "C", Subject: "s.>",
		Capacity: capacity, Budget: DefaultBudget, MayFetch: always, Tracker: quiet(), Log: zap.NewNop(),
	})
	kit.Check(l.T, err)
	s.quiet = patience
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		kit.Check(l.T, <-ended)
	})
	l.Cleanup(func() {
		end()
		connection.Close()
	})
	kit.Eventually(l.T, "the feed is bound", s.IsBound)
	return s, end
}

// quiet is a tracker that logs nothing.
func quiet() *availability.Tracker {
	return availability.New(zap.NewNop(), func(availability.Dependency) int { return 0 })
}

func (l *fixture) publish(n int) {
	l.Helper()
	for i := range n {
		_, err := l.js.Publish(l.Context(), "s.a", fmt.Append(nil, i))
		kit.Check(l.T, err)
	}
}

// arrived takes n deliveries as they arrive.
func (l *fixture) arrived(s *Feed, n int) []*Delivery {
	l.Helper()
	var all []*Delivery
	for len(all) < n {
		taken, err := s.inflight.take(l.Context(), n-len(all), kit.Patience)
		kit.Check(l.T, err)
		if len(taken) == 0 {
			l.Fatalf("%d deliveries have arrived, expected %d", len(all), n)
		}
		all = append(all, taken...)
	}
	return all
}

func (l *fixture) consumer() *jetstream.ConsumerInfo {
	l.Helper()
	consumer, err := l.js.Consumer(l.Context(), "S", "C")
	kit.Check(l.T, err)
	return consumer.CachedInfo()
}

// A worker that stops leaves nothing behind that the server has delivered: it would reach another replica
// only after AckWait.
func TestEndedFeedHoldsAllDeliveries(t *testing.T) {
	l := newFixture(t, func(config *jetstream.ConsumerConfig) { config.MaxAckPending = 100_000 })
	for _, after := range []int{1, 500, 3000} {
		for i := range 8_000 { // enough for all requests
			_, err := l.js.PublishAsync("s.a", fmt.Append(nil, i))
			kit.Check(t, err)
			if i%1000 == 999 {
				<-l.js.PublishAsyncComplete()
			}
		}
		s, end := l.start(8000, kit.Patience)
		kit.Eventually(t, "some have arrived", func() bool { return s.Held() >= after })
		end()
		kit.Eventually(t, "the server has delivered what is in flight", func() bool { return l.consumer().NumAckPending == s.Held() })
		if s.inflight.reserved != (room{}) {
			t.Errorf("%+v is reserved", s.inflight.reserved)
		}
		for _, d := range l.arrived(s, s.Held()) {
			kit.Check(t, s.Ack(d))
		}
		kit.Eventually(t, "they are acknowledged", func() bool { return l.consumer().NumAckPending == 0 })
	}
}

// Room is asked for when it is there, and not only now and then: 400 events would take 50 seconds then.
func TestRoomIsUsedAtOnce(t *testing.T) {
	l := newFixture(t, nil)
	s := l.source(8)
	l.publish(400)
	began := time.Now()
	for range 400 {
		kit.Check(t, s.Ack(l.arrived(s, 1)...))
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("it took %s", took)
	}
}
