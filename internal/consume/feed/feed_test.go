package feed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// fixture is a server with a stream and a consumer that the feeds of several replicas read.
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
	_, err = l.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	config := jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Minute, MaxDeliver: -1, MaxAckPending: 400,
	}
	if change != nil {
		change(&config)
	}
	_, err = l.js.CreateConsumer(t.Context(), "S", config)
	kit.Check(t, err)
	return l
}

// source starts the feed of a replica with the given capacity.
func (l *fixture) source(capacity int) *Feed {
	l.Helper()
	s, _ := l.start(capacity, finishQuiet)
	return s
}

// start starts a feed and also returns a function that ends it.
func (l *fixture) start(capacity int, patience time.Duration) (s *Feed, end func()) {
	l.Helper()
	return l.startWith(capacity, DefaultBudget, patience)
}

func (l *fixture) startWith(capacity int, budget int64, patience time.Duration) (s *Feed, end func()) {
	l.Helper()
	connection, err := nats.Connect(l.url, nats.Timeout(10*time.Second))
	kit.Check(l.T, err)
	s, err = New(Settings{
		Connection: Connection{Conn: connection}, Stream: "S", Consumer: "C", Subject: "s.>",
		Capacity: capacity, Budget: budget, MayFetch: always, Tracker: quiet(), Log: zap.NewNop(),
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

// A lookup of a server at 1.2 s once ended after a second, so that the feed never bound.
func TestFeedOfADistantServer(t *testing.T) {
	l := newFixture(t, nil)
	link := redistest.StartProxy(t, strings.TrimPrefix(l.url, "nats://"))
	link.Delay(1200 * time.Millisecond)
	l.url = "nats://" + link.Addr
	s := l.source(8)
	l.publish(3)
	l.arrived(s, 3)
}

// quiet returns a tracker that logs nothing.
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

// Goroutines with an inbox each would mix up the events of their requests.
func TestEventsArriveInTheOrderOfTheStream(t *testing.T) {
	l := newFixture(t, func(config *jetstream.ConsumerConfig) { config.MaxAckPending = 100_000 })
	const n = 20_000
	payloads := [][]byte{nil, make([]byte, 100), make([]byte, 3000), make([]byte, 20_000)}
	for i := range n {
		payload := payloads[i%2]
		if i%50 == 0 {
			payload = payloads[2+i/50%2]
		}
		_, err := l.js.PublishAsync("s.a", payload)
		kit.Check(t, err)
		if i%1000 == 999 {
			<-l.js.PublishAsyncComplete()
		}
	}
	s, _ := l.startWith(2000, 4<<20, finishQuiet)
	for next := uint64(1); next <= n; {
		deliveries, err := s.Take(t.Context(), 100, kit.Patience)
		kit.Check(t, err)
		if len(deliveries) == 0 {
			t.Fatalf("nothing arrives after %d", next-1)
		}
		for _, d := range deliveries {
			if d.Seq != next {
				t.Fatalf("%d arrived, expected %d", d.Seq, next)
			}
			next++
		}
		kit.Check(t, s.Ack(deliveries...))
	}
	if _, peak := s.Bytes(); peak > 4<<20 {
		t.Errorf("%d bytes were in flight or requested, expected at most %d", peak, 4<<20)
	}
}

// Anything left behind would reach another replica only after AckWait.
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
		kit.Eventually(t, "the server has delivered what is in flight", func() bool {
			return l.consumer().NumAckPending == s.Held()
		})
		if s.inflight.reserved != 0 {
			t.Errorf("%d bytes are reserved", s.inflight.reserved)
		}
		for _, d := range l.arrived(s, s.Held()) {
			kit.Check(t, s.Ack(d))
		}
		kit.Eventually(t, "they are acknowledged", func() bool { return l.consumer().NumAckPending == 0 })
	}
}

// An operator bounds the requests of a consumer while it is read.
func TestChangedRequestLimitsAreKept(t *testing.T) {
	l := newFixture(t, nil)
	s := l.source(64)
	l.publish(1)
	kit.Check(t, s.Ack(l.arrived(s, 1)...))
	config := l.consumer().Config
	config.MaxRequestBatch = 5
	_, err := l.js.UpdateConsumer(t.Context(), "S", config)
	kit.Check(t, err)
	l.publish(200)
	for got := 0; got < 200; {
		taken, err := s.inflight.take(t.Context(), 512, kit.Patience)
		kit.Check(t, err)
		if len(taken) == 0 {
			t.Fatalf("%d of 200 events, and then none; waits %v", got, s.settings.Tracker.Waits())
		}
		got += len(taken)
		kit.Check(t, s.Ack(taken...))
	}
}

// A publisher's Nats-Msg-Size makes its empty events look as if the server kept their payloads back. They are
// taken like others, so they cannot fill the consumer.
func TestForgedSizeHeadersAreNotRedelivered(t *testing.T) {
	const forged = 3000
	l := newFixture(t, func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1000 })
	for range forged {
		message := nats.NewMsg("s.forged")
		message.Header.Set("Nats-Msg-Size", "5")
		_, err := l.js.PublishMsgAsync(message)
		kit.Check(t, err)
	}
	<-l.js.PublishAsyncComplete()
	s := l.source(2048)
	for got := 0; got < forged; {
		taken, err := s.inflight.take(t.Context(), 512, kit.Patience)
		kit.Check(t, err)
		if len(taken) == 0 {
			t.Fatalf("%d of %d events, and then none", got, forged)
		}
		for _, d := range taken {
			if d.Redelivered.Load() {
				t.Fatalf("event %d was sent back", d.Seq)
			}
		}
		got += len(taken)
		kit.Check(t, s.Ack(taken...))
	}
}
