package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/status"
	"notifier/test/kit"
)

// TestEventsThatWillNotBeDeliveredAgainAreShown kills every worker that receives the events, until the
// consumer has delivered them as often as its max_deliver allows. Then it does as the status advises.
func TestEventsThatWillNotBeDeliveredAgainAreShown(t *testing.T) {
	t.Parallel()
	server, slack, env := services(t, nil)
	js := kit.JetStream(t, server.URL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "NOTIFY", Subjects: []string{"notify.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	consumer, err := js.CreateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "notifier", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 2,
	})
	kit.Check(t, err)
	slack.Respond(devstack.Always(devstack.Response{Delay: time.Hour}))
	publishes(t, env, "errors", "-id", "e-1", "disk full")
	publishes(t, env, "errors", "-id", "e-2", "disk empty")
	for deliveries := uint64(2); deliveries <= 4; deliveries += 2 {
		worker := start(t, env)
		kit.Eventually(t, "the worker has the events", func() bool {
			info, err := consumer.Info(t.Context())
			return err == nil && info.Delivered.Consumer == deliveries
		})
		kit.Eventually(t, "they are admitted", func() bool {
			out, _ := runToEnd(t, env, exitDone, "why", "e-2")
			return strings.HasPrefix(out, "In flight in errors: admitted ")
		})
		kit.Check(t, worker.command.Process.Kill())
		<-worker.ended
	}

	slack.Respond(nil)
	worker := startReady(t, env)
	metrics := adminURL(t, &worker.out) + "/metrics"
	expectMetrics(t, metrics, `notifier_stream_unread_stuck 2$`)
	expectMetrics(t, metrics, `notifier_consumer_pending 0$`)
	eventuallyStatus(t, "it names them", env, func(now status.State) bool {
		return hasCondition(now, "stream/NOTIFY", status.Warn, "2 events never delivered again (max_deliver)")
	})
	_, errOut := runToEnd(t, env, exitFailed, "why", "e-9")
	if !strings.Contains(errOut, "; 0 events unread in stream NOTIFY, at least 2 never delivered again (max_deliver); ") {
		t.Errorf("%q, expected the number of stuck events", errOut)
	}

	kit.Check(t, js.DeleteConsumer(t.Context(), "NOTIFY", "notifier"))
	kit.Eventually(t, "both are sent", func() bool { return len(worker.out.lines(`"outcome":"sent"`)) == 2 })
}
