package consume_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/feed"
	"notifier/internal/devstack"
	"notifier/test/kit"
)

// Messages outside NATS_SUBJECT have no category. The worker waits instead of dead-lettering them.
func TestConsumerWiderThanTheSubjectIsNotRead(t *testing.T) {
	s := newFixture(t)
	stream := s.createStream(func(config *jetstream.StreamConfig) {
		config.Subjects, config.Retention = []string{"notify.>", "other.>"}, jetstream.LimitsPolicy
	})
	config := jetstream.ConsumerConfig{
		Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1,
	}
	kit.Check(t, second(stream.CreateConsumer(t.Context(), config)))
	kit.Check(t, second(s.js.Publish(t.Context(), "other.errors", []byte("not ours"))))
	s.publish("errors", "hello")
	r := s.start()
	s.eventually("the worker names the mismatch", func() bool {
		return strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), "which is more than NATS_SUBJECT notify.>") &&
			len(s.log.waits("consumer")) == 1
	})
	if lines := s.log.settled(); len(lines) != 0 || s.consumerInfo().NumAckPending != 0 {
		t.Errorf("settled %v, and %d are with the worker, expected nothing to be read",
			lines, s.consumerInfo().NumAckPending)
	}
	config.FilterSubject = "notify.>"
	kit.Check(t, second(stream.UpdateConsumer(t.Context(), config)))
	s.settled(1)
	s.expectEachPostedOnce(1)
}

// A deployment in another namespace, such as staging with production's NATS, would take events and count them
// elsewhere. It waits until somebody gives it the consumer.
func TestConsumerOfAnotherNamespaceIsNotRead(t *testing.T) {
	s := newFixture(t)
	s.started()
	staging := s.start(func(c *setup) { c.namespace = "staging" })
	s.eventually("the worker names the namespace", func() bool {
		return strings.Contains(staging.waitsFor("consumer"), `belongs to workers with REDIS_NAMESPACE "test", and here it is "staging"`)
	})
	if len(staging.Ready(t.Context())) == 0 {
		t.Error("a worker without a consumer is ready")
	}
	s.publishMany("errors", 20)
	s.settled(20)
	if held := staging.Snapshot().InFlight; held > 0 {
		t.Errorf("the other namespace has %d events, expected none", held)
	}

	config := s.consumerInfo().Config
	config.Metadata[feed.NamespaceKey] = "staging"
	kit.Check(t, second(s.js.UpdateConsumer(t.Context(), streamName, config)))
	staging.expectReady()
}

// An operator's consumer, or one of an older release, names no namespace.
func TestConsumerWithoutANamespaceIsRead(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(func(*jetstream.ConsumerConfig) {})
	s.started()
	s.publish("errors", "hello")
	s.settled(1)
	if namespace, found := s.consumerInfo().Config.Metadata[feed.NamespaceKey]; found {
		t.Errorf("the consumer was given the namespace %q, expected that it is not altered", namespace)
	}
}

// Only dead events need the dead-letter stream.
func TestGoodEventsNeedNoDeadLetterStream(t *testing.T) {
	s := newFixture(t)
	_, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "FOREIGN", Subjects: []string{"notify-dead.>"},
	})
	kit.Check(t, err)
	r := s.start()
	s.eventually("the worker reports it", func() bool {
		return strings.HasPrefix(r.waitsFor("dead_letter"), "stream NOTIFY_DEAD: ")
	})
	s.publish("errors", "") // dead; its letter waits, although FOREIGN would take it
	s.eventually("the letter waits for the stream", func() bool {
		return strings.HasPrefix(r.waitsFor("dead_letter"), "nats: dead letter: stream NOTIFY_DEAD: ")
	})
	s.publishMany("errors", 300) // more than the worker holds
	s.settled(300)
	kit.Check(t, s.js.DeleteStream(t.Context(), "FOREIGN"))
	s.settled(301)
	s.expectNothingLeft()
	s.eventually("the worker has made its own", func() bool { return len(r.Snapshot().Waits) == 0 })
	if s.streamInfo(deadName).Config.MaxAge != 30*24*time.Hour {
		t.Error("the dead-letter stream is not the worker's own")
	}
}

// A server without its storage ignores pull requests. The worker has to detect that the consumer is gone.
func TestServerThatLostItsStorage(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.nats.Stop()
	fresh, err := devstack.StartNATS(s.nats.Addr(), t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = fresh.Close() })
	if fresh.Addr() != s.nats.Addr() {
		t.Fatalf("the new server is at %s, expected %s", fresh.Addr(), s.nats.Addr())
	}
	s.eventually("the stream is there", func() bool {
		_, err := s.js.Stream(t.Context(), streamName)
		return err == nil
	})
	r.expectReady()
	s.publish("errors", "hello")
	s.settled(1)
	s.expectNothingLeft()
}
