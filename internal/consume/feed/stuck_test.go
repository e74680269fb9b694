package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
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
	earlier := s.look()
	return s.look().Confirmed(earlier)
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
	none, firstTwo := func(int) bool { return false }, func(i int) bool { return i < 2 }
	for _, c := range []struct {
		retention  jetstream.RetentionPolicy
		filter     string
		maxDeliver int
		known      bool
	}{
		{jetstream.WorkQueuePolicy, "notify.>", 2, true},
		{jetstream.WorkQueuePolicy, "", 1, true},
		{jetstream.WorkQueuePolicy, "notify.errors", 2, true}, // the stream has further subjects
		{jetstream.WorkQueuePolicy, "notify.errors", 1, false},
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
			if c.known {
				s.expect("unread", 0)
			}
			if c.maxDeliver == 2 {
				s.fetch(5, none)
				s.expect("held by a worker", 0)
			}
			s.fetch(5, firstTwo)
			if !c.known {
				s.eventually("nothing is unacknowledged", func() bool {
					info, err := s.consumer.Info(t.Context())
					return err == nil && info.NumAckPending == 0
				})
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

// TestEventsPublishedDuringALookAreNotStuck stores events after the consumer was looked up.
func TestEventsPublishedDuringALookAreNotStuck(t *testing.T) {
	t.Parallel()
	before := jetstream.StreamState{Msgs: 5, FirstSeq: 6, LastSeq: 10}
	consumer := &jetstream.ConsumerInfo{
		NumPending: 2, NumAckPending: 1, Config: jetstream.ConsumerConfig{MaxDeliver: 1},
	}
	after := &jetstream.StreamInfo{
		Config: jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy},
		State:  jetstream.StreamState{Msgs: 9, FirstSeq: 6, LastSeq: 14},
	}
	if look := stuckIn(before, consumer, after); look.Stuck != 2 || !look.Known {
		t.Errorf("%+v, expected the two that neither wait nor were published meanwhile", look)
	}
}

// TestTwoLooksConfirmStuckEvents compares two looks, because a single one overcounts while the server is
// busy.
func TestTwoLooksConfirmStuckEvents(t *testing.T) {
	t.Parallel()
	look := func(stuck, first, delivered uint64) StuckLook {
		return StuckLook{Stuck: stuck, Known: true, first: first, delivered: delivered}
	}
	for name, c := range map[string]struct {
		earlier, now StuckLook
		want         uint64
		known        bool
	}{
		"the same":            {look(3, 5, 90), look(3, 5, 200), 3, true},
		"fewer":               {look(3, 5, 90), look(2, 5, 200), 2, true},
		"new ones":            {look(0, 5, 90), look(2, 5, 200), 0, true},
		"all of then settled": {look(3, 5, 90), look(3, 91, 200), 0, true},
		"only now":            {StuckLook{}, look(3, 5, 200), 0, false},
		"not now":             {look(3, 5, 90), StuckLook{}, 0, false},
	} {
		if n, known := c.now.Confirmed(c.earlier); n != c.want || known != c.known {
			t.Errorf("%s: %d (known: %v), expected %d (%v)", name, n, known, c.want, c.known)
		}
	}
}

// TestStuckEventsComeBackOnlyWithANewConsumer tries the two obvious remedies of an operator.
func TestStuckEventsComeBackOnlyWithANewConsumer(t *testing.T) {
	s := newStuckFixture(t, jetstream.WorkQueuePolicy,
		jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: 500 * time.Millisecond})
	s.publish(3)
	s.fetch(3, func(i int) bool { return i == 0 })
	s.eventually("two events are stuck", func() bool { n, _ := s.confirmed(); return n == 2 })

	s.create(jetstream.ConsumerConfig{MaxDeliver: -1, AckWait: 500 * time.Millisecond})
	batch, err := s.consumer.FetchNoWait(3)
	kit.Check(t, err)
	for message := range batch.Messages() {
		t.Errorf("%s was delivered after max_deliver was changed, expected nothing", message.Data())
	}
	s.expect("max_deliver is -1", 2)

	kit.Check(t, s.js.DeleteConsumer(t.Context(), "NOTIFY", "notifier"))
	if _, err := LookForStuck(t.Context(), s.js, "NOTIFY", "notifier"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("%v, expected that there is no consumer", err)
	}
	s.create(jetstream.ConsumerConfig{MaxDeliver: -1})
	s.fetch(2, func(int) bool { return true })
	s.expect("the consumer is new", 0)
}

// TestHeldEventsAreNotStuck holds redelivered events, as a worker does during an outage.
func TestHeldEventsAreNotStuck(t *testing.T) {
	s := newStuckFixture(t, jetstream.WorkQueuePolicy, jetstream.ConsumerConfig{
		MaxDeliver: 2, AckWait: time.Minute,
	})
	s.publish(5)
	batch, err := s.consumer.Fetch(5, jetstream.FetchMaxWait(kit.Patience))
	kit.Check(t, err)
	for message := range batch.Messages() {
		kit.Check(t, message.Nak())
	}
	s.fetch(5, func(int) bool { return false })
	s.expect("delivered twice and held", 0)
}

// TestNothingIsStuckInAStorm looks repeatedly while events are published and acknowledged and one event is
// held. With max_deliver 1 the server does not count redelivered events.
func TestNothingIsStuckInAStorm(t *testing.T) {
	t.Parallel()
	t.Run("redeliveries", func(t *testing.T) { storm(t, 1000, 10) })
	t.Run("max_deliver 1", func(t *testing.T) { storm(t, 1, 0) })
}

// storm rejects every refuseEvery-th event. Zero means none.
func storm(t *testing.T, maxDeliver, refuseEvery int) {
	t.Helper()
	s := newStuckFixture(t, jetstream.WorkQueuePolicy,
		jetstream.ConsumerConfig{MaxDeliver: maxDeliver, AckWait: time.Hour, MaxAckPending: 5000})
	s.publish(1)
	s.fetch(1, func(int) bool { return false })
	ctx, stop := context.WithCancel(t.Context())
	var redelivered atomic.Int64
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for ctx.Err() == nil {
			for range 30 {
				_, _ = s.js.PublishAsync("notify.errors", []byte("storm"), jetstream.WithStallWait(time.Second))
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for range 2 {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; {
				batch, err := s.consumer.Fetch(200, jetstream.FetchMaxWait(100*time.Millisecond))
				if err != nil {
					continue
				}
				for message := range batch.Messages() {
					if n++; refuseEvery > 0 && n%refuseEvery == 0 {
						_ = message.Nak()
						redelivered.Add(1)
					} else {
						_ = message.Ack()
					}
				}
			}
		})
	}
	earlier := s.look()
	for range 30 {
		time.Sleep(50 * time.Millisecond)
		now := s.look()
		if n, known := now.Confirmed(earlier); n != 0 || !known {
			t.Errorf("%d events are stuck (known: %v), expected none: %+v, before %+v", n, known, now, earlier)
		}
		earlier = now
	}
	info, err := s.consumer.Info(t.Context())
	kit.Check(t, err)
	if n := redelivered.Load(); info.Delivered.Consumer < 1000 || refuseEvery > 0 && n < 100 {
		t.Errorf("%d deliveries, %d events redelivered, expected a storm", info.Delivered.Consumer, n)
	}
}
