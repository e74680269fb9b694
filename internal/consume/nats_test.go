package consume_test

import (
	"encoding/json"
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
	s.started()
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publishMany("errors", 20)
	s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 20 })
	s.nats.Stop()
	kit.Check(t, s.nats.Start())
	s.slack.Respond(nil)
	s.settled(20)
	s.expectEachPostedOnce(20)
	s.expectNothingLeft()
}

// The new consumer redelivers the held events as first deliveries.
func TestDeletedConsumerIsRecreated(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.concurrency = 1 })
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publishMany("errors", 10)
	s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 10 })
	kit.Check(t, s.js.DeleteConsumer(t.Context(), streamName, consumerName))
	s.eventually("the consumer is there", func() bool {
		_, err := s.js.Consumer(t.Context(), streamName, consumerName)
		return err == nil
	})
	s.slack.Respond(devstack.Always(devstack.Response{Delay: 100 * time.Millisecond}))
	s.eventually("all are settled", func() bool { return s.streamInfo(streamName).State.Msgs == 0 })
	s.expectEachPostedOnce(10)
	s.expectNothingLeft()
	// An event settled before its redelivery cannot be acknowledged, so it comes again as a duplicate.
	if count := tally(s.log.settled()); count["sent"] != 10 || len(count) > 2 || count["dropped duplicate"] > 10 {
		t.Errorf("outcomes %v, expected 10 sent, and duplicates at most", count)
	}
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
	r := s.start(func(c *setup) { c.natsURL = kit.NATSServer(t, &natsserver.Options{}).ClientURL() })
	if err := r.wait(); !errors.Is(err, feed.ErrUnsuitable) || !strings.Contains(err.Error(), "JetStream") {
		t.Errorf("Run returns %v, expected that JetStream is off", err)
	}
}

func TestExistingStreamAndConsumerAreKept(t *testing.T) {
	s := newFixture(t)
	stream := s.createStream(func(config *jetstream.StreamConfig) {
		config.Description, config.Subjects = "mine", []string{"notify.>", "other.>"}
		config.Retention, config.MaxAge = jetstream.LimitsPolicy, time.Hour
	})
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: deadName, Subjects: []string{"notify-dead.>"}, Description: "mine too",
	})
	kit.Check(t, err)
	_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: consumerName, Description: "mine",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 7 * time.Second,
		MaxAckPending: 17, MaxDeliver: 99, FilterSubject: "notify.>", MaxWaiting: 5,
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

func TestAConsumerThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		wants  string
	}{
		"push":          {nil, "push"},
		"all at once":   {func(config *jetstream.ConsumerConfig) { config.AckPolicy = jetstream.AckAllPolicy }, "explicit"},
		"fire and hope": {func(config *jetstream.ConsumerConfig) { config.AckPolicy = jetstream.AckNonePolicy }, "explicit"},
		"in groups": {func(config *jetstream.ConsumerConfig) {
			config.PriorityPolicy, config.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"night"}
		}, "priority groups night"},
		"without payloads": {func(config *jetstream.ConsumerConfig) { config.HeadersOnly = true }, "headers_only"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			stream := s.createStream(func(config *jetstream.StreamConfig) {
				config.Retention = jetstream.LimitsPolicy
			})
			config := jetstream.ConsumerConfig{Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy}
			if test.change != nil {
				test.change(&config)
				kit.Check(t, second(stream.CreateConsumer(t.Context(), config)))
			} else {
				config.DeliverSubject = "somewhere"
				kit.Check(t, second(stream.CreatePushConsumer(t.Context(), config)))
			}
			err := s.start().wait()
			refused := errors.Is(err, feed.ErrUnsuitable) && strings.Contains(err.Error(), consumerName)
			if !refused || !strings.Contains(err.Error(), test.wants) {
				t.Errorf("Run returns %v, expected that consumer %s cannot be used (%s)", err, consumerName, test.wants)
			}
		})
	}
}

func TestConsumerRequestLimitsAreKept(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(func(config *jetstream.ConsumerConfig) {
		config.MaxRequestBatch, config.MaxRequestExpires, config.MaxRequestMaxBytes = 3, time.Second, 10_000
	})
	asked := make(chan *nats.Msg, 1000)
	watch, err := s.conn.ChanSubscribe("$JS.API.CONSUMER.MSG.NEXT.>", asked)
	kit.Check(t, err)
	s.started()
	s.publishMany("errors", 30)
	s.settled(30)
	kit.Check(t, watch.Unsubscribe())
	close(asked)
	n := 0
	for message := range asked {
		var request struct {
			Batch    int           `json:"batch"`
			MaxBytes int           `json:"max_bytes"`
			Expires  time.Duration `json:"expires"`
		}
		kit.Check(t, json.Unmarshal(message.Data, &request))
		if request.Batch > 3 || request.Expires > time.Second || request.MaxBytes > 10_000 {
			t.Errorf("request %s, expected at most 3 events, 10,000 bytes and one second", message.Data)
		}
		n++
	}
	if n < 10 {
		t.Errorf("%d requests were seen, expected at least 10", n)
	}
}

// A closed connection never reconnects, so Run must end, even while events in flight are blocked.
func TestClosedConnectionEndsRun(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		s := map[bool]string{false: "idle", true: "with events in flight"}
		t.Run(s[held], func(t *testing.T) {
			s := newFixture(t)
			r := s.started(func(c *setup) { c.shutdown = 500 * time.Millisecond })
			if held {
				s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
				s.publishMany("errors", 5)
				s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 5 })
			}
			r.connection.Close()
			if err := r.wait(); !errors.Is(err, nats.ErrConnectionClosed) {
				t.Errorf("Run returns %v, expected %v", err, nats.ErrConnectionClosed)
			}
		})
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
	plain := kit.NATSServer(t, &natsserver.Options{Port: port})
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

// A publisher can forge the header that marks an omitted payload. The worker checks the consumer and
// settles the event.
func TestForgedSizeHeaderDoesNotBlockTheWorker(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.publish("errors", "", "Nats-Msg-Size", "17")
	s.publish("errors", "hello")
	s.settled(2)
	if count := tally(s.log.settled()); count["dead malformed"] != 1 || count["sent"] != 1 {
		t.Errorf("outcomes %v, expected the empty one dead and the other one sent", count)
	}
	s.expectNothingLeft()
}

// An operator can repair the consumer, so a worker that was bound before waits.
func TestBoundWorkerWaitsWhileConsumerIsPush(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	own := s.consumerInfo().Config
	kit.Check(t, s.js.DeleteConsumer(t.Context(), streamName, consumerName))
	pushing := jetstream.ConsumerConfig{
		Durable: consumerName, DeliverSubject: "there",
		AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "notify.>",
	}
	s.eventually("it is a push consumer", func() bool { // the worker may recreate its own consumer first
		if second(s.js.CreatePushConsumer(t.Context(), streamName, pushing)) == nil {
			return true
		}
		_ = s.js.DeleteConsumer(t.Context(), streamName, consumerName)
		return false
	})
	s.eventually("the worker names it", func() bool {
		return strings.Contains(r.waitsFor("consumer"), "consumer notifier is a push consumer")
	})
	kit.Check(t, s.js.DeleteConsumer(t.Context(), streamName, consumerName))
	_, err := s.js.CreateOrUpdateConsumer(t.Context(), streamName, own)
	kit.Check(t, err)
	r.expectReady()
	s.publish("errors", "hello")
	s.settled(1)
}

// The worker cannot hold events that the stream deletes, so it warns at startup.
func TestWorkerWarnsAboutLossyStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*jetstream.StreamConfig)
		warn   int
	}{
		"short age":               {func(c *jetstream.StreamConfig) { c.MaxAge = 59 * time.Minute }, 1},
		"bounded, discards old":   {func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }, 1},
		"bounded, discards new":   {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardNew }, 0},
		"unbounded, discards old": {func(*jetstream.StreamConfig) {}, 0},
		"TTLs of events":          {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, 1},
		"interest":                {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, 1},
		"in memory, roll-ups":     {func(c *jetstream.StreamConfig) { c.Storage, c.AllowRollup = jetstream.MemoryStorage, true }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.createStream(test.change)
			s.started()
			if lines := s.log.named("events may be lost or late"); len(lines) != test.warn {
				t.Errorf("warnings %v, expected %d", lines, test.warn)
			}
		})
	}
}
