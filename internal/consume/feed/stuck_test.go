package feed

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/wait"
	"notifier/test/kit"
	"notifier/test/natstest"
	"notifier/test/redistest"
)

// stuckFixture is a stream with a consumer that limits deliveries.
type stuckFixture struct {
	*testing.T
	js       jetstream.JetStream
	consumer jetstream.Consumer
}

func newStuckFixture(
	t *testing.T, retention jetstream.RetentionPolicy, config jetstream.ConsumerConfig,
) *stuckFixture {
	t.Helper()
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	s := &stuckFixture{T: t, js: kit.JetStream(t, server.URL())}
	_, err = s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: retention,
	})
	kit.Check(t, err)
	s.create(config)
	return s
}

func (s *stuckFixture) create(config jetstream.ConsumerConfig) {
	s.Helper()
	config.Durable, config.AckPolicy = "notifier", jetstream.AckExplicitPolicy
	var err error
	s.consumer, err = s.js.CreateOrUpdateConsumer(s.Context(), "NOTIFY", config)
	kit.Check(s.T, err)
}

func (s *stuckFixture) publish(n int) {
	s.Helper()
	for i := range n {
		_, err := s.js.Publish(s.Context(), "notify.errors", fmt.Appendf(nil, "event %d", i))
		kit.Check(s.T, err)
	}
}

// fetch receives n events and acknowledges those at positions accepted by acknowledges.
func (s *stuckFixture) fetch(n int, acknowledges func(i int) bool) {
	s.Helper()
	batch, err := s.consumer.Fetch(n, jetstream.FetchMaxWait(kit.Patience))
	kit.Check(s.T, err)
	i := 0
	for message := range batch.Messages() {
		if acknowledges(i) {
			kit.Check(s.T, message.DoubleAck(s.Context()))
		}
		i++
	}
	if i != n {
		s.Fatalf("%d events were delivered, expected %d: %v", i, n, batch.Error())
	}
}

func (s *stuckFixture) look() StuckLook {
	s.Helper()
	look, err := LookForStuck(s.Context(), s.js, "NOTIFY", "notifier")
	kit.Check(s.T, err)
	return look
}

// eventually requests events while it waits, as a worker does. Without requests the server keeps events
// pending that have reached max_deliver.
func (s *stuckFixture) eventually(what string, holds func() bool) {
	s.Helper()
	kit.Eventually(s.T, what, func() bool {
		batch, err := s.consumer.FetchNoWait(1)
		kit.Check(s.T, err)
		for message := range batch.Messages() {
			s.Errorf("%s was delivered, expected nothing", message.Data())
		}
		return holds()
	})
}

func (s *stuckFixture) confirmed() (uint64, bool) {
	s.Helper()
	var looks StuckLooks
	earlier := s.look()
	earlier.at = earlier.at.Add(-stuckFor)
	looks.Add(earlier)
	return looks.Add(s.look())
}

func (s *stuckFixture) expect(what string, want uint64) {
	s.Helper()
	if n, known := s.confirmed(); n != want || !known {
		s.Errorf("%s: %d events are stuck (known: %v), expected %d", what, n, known, want)
	}
}

// TestEventsThatReachedMaxDeliverAreStuck exhausts the deliveries of events in every kind of stream.
func TestEventsThatReachedMaxDeliverAreStuck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retention  jetstream.RetentionPolicy
		filter     string
		maxDeliver int
		known      bool
	}{
		{jetstream.WorkQueuePolicy, "notify.>", 2, true},
		{jetstream.WorkQueuePolicy, "", 1, true},
		{jetstream.WorkQueuePolicy, "notify.errors", 1, false}, // the stream has further subjects
		{jetstream.InterestPolicy, "", 2, true},
		{jetstream.LimitsPolicy, "", 2, true},
		{jetstream.LimitsPolicy, "", 1, false},
	} {
		t.Run(fmt.Sprintf("%v %q %d", c.retention, c.filter, c.maxDeliver), func(t *testing.T) {
			s := newStuckFixture(t, c.retention, jetstream.ConsumerConfig{
				MaxDeliver: c.maxDeliver, AckWait: 500 * time.Millisecond, FilterSubject: c.filter,
			})
			s.publish(5)
			kit.Eventually(t, "five events are unread", func() bool { return s.look().Unread == 5 })
			for range c.maxDeliver - 1 {
				s.fetch(5, func(int) bool { return false })
				s.expect("held by a worker", 0)
			}
			s.fetch(5, func(i int) bool { return i < 2 })
			if !c.known {
				if n, known := s.confirmed(); n != 0 || known {
					t.Errorf("%d events are stuck (known: %v), expected that it is not known", n, known)
				}
				return
			}
			s.eventually("three events are stuck", func() bool { n, _ := s.confirmed(); return n == 3 })
			s.publish(4)
			s.expect("four unread ones more", 3)
			kit.Eventually(t, "four events are unread: stuck ones do not count", func() bool {
				return s.look().Unread == 4
			})
		})
	}
}

// TestOneLook compares a stream with a consumer of it.
func TestOneLook(t *testing.T) {
	t.Parallel()
	before := jetstream.StreamState{Msgs: 5, FirstSeq: 6, LastSeq: 10}
	after := &jetstream.StreamInfo{
		Config: jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy},
		State:  jetstream.StreamState{Msgs: 9, FirstSeq: 6, LastSeq: 14},
	}
	// Four events were published meanwhile, so two of the nine neither wait nor are new.
	consumer := &jetstream.ConsumerInfo{NumPending: 2, NumAckPending: 1, NumRedelivered: 1}
	if look := stuckIn(before, consumer, after); look.Stuck != 2 || !look.Known {
		t.Errorf("%+v, expected two", look)
	}
}

// TestPassedOverEventsAreStuck changes the filter while events arrive, and changes it back. The server never
// delivers the events in between, and counts them nowhere.
func TestPassedOverEventsAreStuck(t *testing.T) {
	s := newStuckFixture(t, jetstream.WorkQueuePolicy,
		jetstream.ConsumerConfig{MaxDeliver: -1, FilterSubject: "notify.>"})
	s.publish(1)
	s.fetch(1, func(int) bool { return true })
	s.create(jetstream.ConsumerConfig{MaxDeliver: -1, FilterSubject: "notify.deploys"})
	s.publish(3)
	_, err := s.js.Publish(t.Context(), "notify.deploys", []byte("an event of the other category"))
	kit.Check(t, err)
	s.fetch(1, func(int) bool { return true })
	s.create(jetstream.ConsumerConfig{MaxDeliver: -1, FilterSubject: "notify.>"})
	s.publish(1)
	s.fetch(1, func(int) bool { return true })
	s.eventually("three events are stuck", func() bool { n, _ := s.confirmed(); return n == 3 })
}

// TestConsumerAheadOfItsStream moves a consumer past the end of its stream, as a restored stream leaves it.
func TestConsumerAheadOfItsStream(t *testing.T) {
	t.Parallel()
	for _, maxDeliver := range []int{-1, 5} {
		t.Run(fmt.Sprint(maxDeliver), func(t *testing.T) {
			config := jetstream.ConsumerConfig{MaxDeliver: maxDeliver}
			s := newStuckFixture(t, jetstream.WorkQueuePolicy, config)
			s.publish(3)
			s.fetch(1, func(int) bool { return true })
			s.expect("unread", 0)
			reset := "$JS.API.CONSUMER.RESET.NOTIFY.notifier"
			reply, err := s.js.Conn().RequestWithContext(t.Context(), reset, []byte(`{"seq":100000}`))
			kit.Check(t, err)
			if strings.Contains(string(reply.Data), `"error"`) {
				t.Fatalf("the server does not reset the consumer: %s", reply.Data)
			}
			s.publish(2)
			s.expect("ahead of the stream", 4)
		})
	}
}

// TestLooksOfAMinuteConfirmStuckEvents adds looks, because a single one overcounts while the server is busy.
func TestLooksOfAMinuteConfirmStuckEvents(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	look := func(seconds int, stuck, first, delivered uint64) StuckLook {
		at := begun.Add(time.Duration(seconds) * time.Second)
		return StuckLook{Stuck: stuck, Known: true, at: at, first: first, delivered: delivered}
	}
	unknown := StuckLook{}
	for name, c := range map[string]struct {
		looks []StuckLook
		want  uint64
		known bool
	}{
		"for a minute":          {[]StuckLook{look(0, 3, 5, 90), look(30, 4, 5, 150), look(60, 3, 5, 200)}, 3, true},
		"for less":              {[]StuckLook{look(0, 3, 5, 90), look(59, 3, 5, 200)}, 0, false},
		"fewer meanwhile":       {[]StuckLook{look(0, 3, 5, 90), look(30, 1, 5, 150), look(60, 2, 5, 200)}, 1, true},
		"none a minute ago":     {[]StuckLook{look(0, 0, 5, 90), look(60, 2, 5, 200)}, 0, true},
		"none meanwhile":        {[]StuckLook{look(0, 3, 5, 90), look(30, 0, 5, 150), look(60, 3, 5, 200)}, 0, true},
		"none before":           {[]StuckLook{look(0, 0, 5, 90), look(30, 3, 5, 150), look(90, 3, 5, 200)}, 3, true},
		"all of then settled":   {[]StuckLook{look(0, 3, 5, 90), look(60, 3, 91, 200)}, 0, true},
		"none at the only look": {[]StuckLook{look(0, 0, 5, 90)}, 0, true},
		"at the only look":      {[]StuckLook{look(0, 3, 5, 90)}, 0, false},
		"unknown now":           {[]StuckLook{look(0, 3, 5, 90), unknown}, 0, false},
		"unknown meanwhile":     {[]StuckLook{look(0, 3, 5, 90), unknown, look(60, 3, 5, 90)}, 0, false},
	} {
		var looks StuckLooks
		var n uint64
		var known bool
		for _, look := range c.looks {
			n, known = looks.Add(look)
		}
		if n != c.want || known != c.known {
			t.Errorf("%s: %d (known: %v), expected %d (%v)", name, n, known, c.want, c.known)
		}
	}
}

// TestNothingIsStuckInAStorm looks repeatedly while events are published and acknowledged and one event is held.
func TestNothingIsStuckInAStorm(t *testing.T) {
	s := newStuckFixture(t, jetstream.WorkQueuePolicy, stormConsumer)
	s.storm(30, 2)
}

// TestNothingIsStuckInAReplicatedStorm: each replica acknowledges an event some milliseconds before it deletes it, so
// no look finds them level.
func TestNothingIsStuckInAReplicatedStorm(t *testing.T) {
	t.Parallel()
	servers := natstest.Cluster(t, 3, func(_ int, options *server.Options) {
		routes := slices.Clone(options.Routes)
		for i, route := range routes {
			link := redistest.StartProxy(t, route.Host)
			link.Delay(10 * time.Millisecond)
			if route.Port() == strconv.Itoa(options.Cluster.Port) {
				options.Cluster.Advertise = link.Addr
			} else {
				routes[i] = &url.URL{Scheme: "nats", Host: link.Addr}
			}
		}
		options.Routes = routes
	})
	s := &stuckFixture{T: t, js: kit.JetStream(t, servers[0].ClientURL())}
	kit.EventuallyNil(t, func() error { // once all three servers know each other
		_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3,
		})
		return err
	})
	s.create(stormConsumer)
	s.storm(6, 1)
}

var stormConsumer = jetstream.ConsumerConfig{MaxDeliver: -1, AckWait: time.Hour, MaxAckPending: 5000}

// storm publishes some events each 10 ms and acknowledges all but the first one. It expects that none is stuck.
func (s *stuckFixture) storm(events, readers int) {
	s.Helper()
	s.publish(1)
	s.fetch(1, func(int) bool { return false })
	ctx, stop := context.WithCancel(s.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for wait.For(ctx, 10*time.Millisecond) {
			for range events {
				_, _ = s.js.PublishAsync("notify.errors", []byte("storm"), jetstream.WithStallWait(time.Second))
			}
		}
	})
	for range readers {
		running.Go(func() {
			for ctx.Err() == nil {
				batch, err := s.consumer.Fetch(200, jetstream.FetchMaxWait(100*time.Millisecond))
				if err != nil {
					continue
				}
				for message := range batch.Messages() {
					_ = message.Ack()
				}
			}
		})
	}
	kit.Eventually(s.T, "there was a storm", func() bool {
		s.expect("in the storm", 0)
		info, err := s.consumer.Info(s.Context())
		return err == nil && info.Delivered.Consumer > 1000
	})
}
