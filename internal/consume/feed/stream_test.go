package feed

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// A deleted or recreated consumer is gone. If the server does not reply, the state stays unknown.
func TestSameConsumer(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	js := kit.JetStream(t, server.URL())
	s := &Feed{settings: Settings{
		Connection: Connection{Conn: js.Conn()}, Stream: "S", Consumer: "C",
	}, js: js}
	create := func() *jetstream.ConsumerInfo {
		stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s.>"},
		})
		kit.Check(t, err)
		consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "C"})
		kit.Check(t, err)
		return consumer.CachedInfo()
	}
	bound := create()
	kit.Check(t, s.sameConsumer(t.Context(), bound))
	gone := func(what string) {
		t.Helper()
		if err := s.sameConsumer(t.Context(), bound); !errors.Is(err, errConsumerGone) {
			t.Errorf("%s: %v, expected that it is gone", what, err)
		}
	}
	kit.Check(t, js.DeleteConsumer(t.Context(), "S", "C"))
	gone("deleted")
	again := create()
	gone("created again")
	kit.Check(t, s.sameConsumer(t.Context(), again))
	bound = again
	for what, config := range map[string]jetstream.ConsumerConfig{
		"ack_wait changed":        {Durable: "C", AckWait: time.Minute},
		"max_ack_pending changed": {Durable: "C", MaxAckPending: 7},
		"max_deliver changed":     {Durable: "C", MaxDeliver: 7},
		"namespace changed":       {Durable: "C", Metadata: map[string]string{NamespaceKey: "staging"}},
		"filter changed":          {Durable: "C", FilterSubject: "s.a"},
	} {
		_, err := js.UpdateConsumer(t.Context(), "S", config)
		kit.Check(t, err)
		gone(what)
	}
	kit.Check(t, js.DeleteStream(t.Context(), "S"))
	gone("deleted with its stream")
	server.Stop()
	asking, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.sameConsumer(asking, bound); err == nil || errors.Is(err, errConsumerGone) {
		t.Errorf("%v, expected an error that leaves it open", err)
	}
}

// NATS refuses a second consumer of a work queue, whether the first one has a filter or not.
func TestWorkQueueHasAnotherConsumer(t *testing.T) {
	t.Parallel()
	for _, filter := range []string{"", "s.>", "s.a"} {
		t.Run(filter, func(t *testing.T) {
			l := newFixture(t, func(config *jetstream.ConsumerConfig) { config.FilterSubject = filter })
			feed, err := New(Settings{
				Connection: Connection{Conn: l.js.Conn()}, Stream: "S", Consumer: "second", Subject: "s.>",
				Capacity: 8, Budget: DefaultBudget, Tracker: quiet(), Log: zap.NewNop(),
			})
			kit.Check(t, err)
			_, err = feed.lookUp(t.Context())
			if err == nil || !strings.Contains(err.Error(), OtherConsumerAdvice) {
				t.Errorf("%v, expected the advice", err)
			}
		})
	}
}
