package consume_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/natstest"
)

func TestWorkerWaitsForNATSAtStart(t *testing.T) {
	s := newFixture(t)
	s.nats.Stop()
	r := s.start()
	s.eventually("the worker reports that NATS is unavailable", func() bool {
		return len(s.log.waits("nats")) == 1 && strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), "nats: ")
	})
	kit.Check(t, r.Live())
	kit.Check(t, s.nats.Start())
	r.expectReady()
	s.publish("errors", "hello")
	s.settled(1)
}

func TestHeldEventsSurviveNATSRestart(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publishMany("errors", 20)
	s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 20 })
	s.nats.Stop()
	s.eventually("the worker reports that NATS is unavailable", func() bool { return r.waitsFor("nats") != "" })
	kit.Check(t, s.nats.Start())
	s.slack.Respond(nil)
	s.settled(20)
	s.expectEachPostedOnce(20)
	s.expectNothingLeft()
}

// The new stream reuses the sequence numbers of the old one. Held events of the old stream must not
// acknowledge new events.
func TestDeletedStreamIsRecreated(t *testing.T) {
	s := newFixture(t)
	s.log.onLine = func(l line) {
		if id, _ := l["event_id"].(string); strings.HasPrefix(id, "new") {
			stream, err := s.js.Stream(t.Context(), streamName)
			kit.Check(t, err)
			if _, err := stream.GetMsg(t.Context(), uint64(l["stream_seq"].(float64))); err != nil {
				t.Errorf("%s has left the stream before its line is written", id)
			}
		}
	}
	s.started(func(c *setup) { c.concurrency = 1 })
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	for _, id := range []string{"old1", "old2", "old3", "old4"} {
		s.publish("errors", id, "Nats-Msg-Id", id)
	}
	s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 4 })
	kit.Check(t, s.js.DeleteStream(t.Context(), streamName))
	s.eventually("the consumer is there", func() bool {
		_, err := s.js.Consumer(t.Context(), streamName, consumerName)
		return err == nil
	})
	for _, id := range []string{"new1", "new2", "new3", "new4"} {
		s.publish("errors", id, "Nats-Msg-Id", id)
	}
	s.slack.Respond(devstack.Always(devstack.Response{Delay: 100 * time.Millisecond}))
	s.settled(8)
	s.expectEachPostedOnce(8)
	s.expectNothingLeft()
}

func TestNATSWithoutJetStreamIsRefused(t *testing.T) {
	s := newFixture(t)
	r := s.start(func(c *setup) { c.natsURL = natstest.Server(t, &natsserver.Options{}).ClientURL() })
	if err := r.wait(); !errors.Is(err, feed.ErrUnsuitable) || !strings.Contains(err.Error(), "JetStream") {
		t.Errorf("Run returns %v, expected that JetStream is off", err)
	}
}

func TestExistingStreamAndConsumerAreKept(t *testing.T) {
	s := newFixture(t)
	stream := s.createStream(func(config *jetstream.StreamConfig) {
		config.Description, config.Retention, config.MaxAge = "mine", jetstream.LimitsPolicy, time.Hour
	})
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: deadName, Subjects: []string{"notify-dead.>"}, Description: "mine too",
	})
	kit.Check(t, err)
	_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: consumerName, Description: "mine",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 7 * time.Second, MaxAckPending: 17, MaxDeliver: 99,
	})
	kit.Check(t, err)
	configs := func() []any {
		return []any{s.streamInfo(streamName).Config, s.streamInfo(deadName).Config, s.consumerInfo().Config}
	}
	before := configs()
	s.started()
	s.publishMany("errors", 50)
	s.settled(50)
	if diff := cmp.Diff(before, configs()); diff != "" {
		t.Errorf("the settings have changed (-before +after):\n%s", diff)
	}
}

// Package feed tests each setting that makes a consumer unusable.
func TestAConsumerThatCannotBeUsedIsRefused(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(config *jetstream.StreamConfig) { config.Retention = jetstream.LimitsPolicy })
	kit.Check(t, second(s.js.CreatePushConsumer(t.Context(), streamName, jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: "somewhere",
	})))
	err := s.start().wait()
	named := err != nil && strings.Contains(err.Error(), "consumer notifier is a push consumer")
	if !errors.Is(err, feed.ErrUnsuitable) || !named {
		t.Errorf("Run returns %v, expected that consumer %s cannot be used", err, consumerName)
	}
}

// A closed connection never reconnects, so Run must end, even while events in flight are blocked.
func TestClosedConnectionEndsRun(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.shutdown = 500 * time.Millisecond })
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publishMany("errors", 5)
	s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 5 })
	r.connection.Close()
	if err := r.wait(); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Run returns %v, expected %v", err, nats.ErrConnectionClosed)
	}
}

// A cluster without a leader looks like a server without JetStream. A worker that was bound before waits.
func TestBoundWorkerWaitsForJetStream(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.nats.Stop()
	_, text, err := net.SplitHostPort(s.nats.Addr())
	kit.Check(t, err)
	port, err := strconv.Atoi(text)
	kit.Check(t, err)
	kit.Check(t, devstack.Released(s.nats.Addr()))
	plain := natstest.Server(t, &natsserver.Options{Port: port})
	s.eventually("the worker waits for its consumer", func() bool {
		return strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), "consumer: ")
	})
	plain.Shutdown()
	plain.WaitForShutdown()
	kit.Check(t, s.nats.Start())
	r.expectReady()
	s.publish("errors", "hello")
	s.settled(1)
}

// An operator sets headers_only on the consumer of a running worker. The worker holds the events, names the
// reason, and resumes when the setting is reverted.
func TestHeadersOnlyLosesNoEvents(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	stream, err := s.js.Stream(t.Context(), streamName)
	kit.Check(t, err)
	config := s.consumerInfo().Config
	config.HeadersOnly = true
	kit.Check(t, second(stream.UpdateConsumer(t.Context(), config)))
	s.publishMany("errors", 20)
	s.eventually("the worker names the reason", func() bool {
		return strings.Contains(r.waitsFor("consumer"), "consumer notifier has headers_only")
	})
	if lines := s.log.settled(); len(lines) != 0 || s.streamInfo(streamName).State.Msgs != 20 {
		t.Errorf("settled %v, and %d events are left; expected all of them",
			lines, s.streamInfo(streamName).State.Msgs)
	}
	config.HeadersOnly = false
	kit.Check(t, second(stream.UpdateConsumer(t.Context(), config)))
	s.settled(20)
	s.expectEachPostedOnce(20)
	s.expectNothingLeft()
}

// The worker cannot hold events that the stream deletes, so it warns at startup. Package feed tests each
// risk.
func TestWorkerWarnsAboutLossyStream(t *testing.T) {
	s := newFixture(t)
	s.createStream(func(c *jetstream.StreamConfig) { c.Storage, c.AllowRollup = jetstream.MemoryStorage, true })
	s.started()
	if lines := s.log.named("events may be lost or late"); len(lines) != 2 {
		t.Errorf("warnings %v, expected one for each risk", lines)
	}
}
