package feed

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/test/kit"
	"notifier/test/natstest"
)

// permitted starts a server with stream S and consumer C, and connects a user who may publish only to API
// subjects and to those given.
func permitted(t *testing.T, publish ...string) (js jetstream.JetStream, worker *nats.Conn) {
	t.Helper()
	t.Parallel()
	allowed := &natsserver.SubjectPermission{Allow: append(publish, "$JS.API.>")}
	server := natstest.Server(t, &natsserver.Options{JetStream: true, Users: []*natsserver.User{
		{Username: "operator", Password: "p"},
		{Username: "worker", Password: "p", Permissions: &natsserver.Permissions{Publish: allowed}},
	}})
	connect := func(user string) *nats.Conn {
		connection, err := nats.Connect(server.ClientURL(), nats.UserInfo(user, "p"))
		kit.Check(t, err)
		t.Cleanup(connection.Close)
		return connection
	}
	js, err := jetstream.New(connect("operator"))
	kit.Check(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	kit.Check(t, err)
	_, err = js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy,
	})
	kit.Check(t, err)
	return js, connect("worker")
}

func TestDeniedAcknowledgementsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		publish string
		denied  bool
	}{
		"permitted":        {"$JS.ACK.S.C.>", false},
		"js_ack_fc_v2":     {"$JS.ACK.*.*.S.C.>", false},
		"another consumer": {"$JS.ACK.S.notifier.>", true},
		"another stream":   {"$JS.ACK.NOTIFY.C.>", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, worker := permitted(t, c.publish)
			for range 2 { // another denial precedes the second probe
				err := Connection{Conn: worker}.MayAcknowledge(t.Context(), "S", "C")
				isNamed := err != nil && strings.Contains(err.Error(), `"$JS.ACK.S.C.>"`)
				if errors.Is(err, nats.ErrPermissionViolation) != c.denied || isNamed != c.denied {
					t.Errorf("%v, expected a denial: %v", err, c.denied)
				}
				kit.Check(t, worker.Publish("elsewhere", nil))
				kit.Check(t, worker.Flush())
			}
		})
	}
}

// Errors about probes are told apart from those about acknowledgements of events.
func TestIsProbe(t *testing.T) {
	errs := make(chan error, 10)
	_, worker := permitted(t)
	worker.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err })
	if err := (Connection{Conn: worker}).MayAcknowledge(t.Context(), "S", "C"); err == nil {
		t.Error("acknowledgements may be published, expected a denial")
	}
	kit.Check(t, worker.Publish("$JS.ACK.S.C.1.10.10.1700000000000000000.0", ackProgress))
	for i, want := range []bool{true, true, false} {
		if err := <-errs; IsProbe(err) != want {
			t.Errorf("error %d: %v: %v, expected %v", i+1, err, !want, want)
		}
	}
}

// The server ignores the probe, in either form, whatever events the consumer has delivered.
func TestProbeChangesNothing(t *testing.T) {
	js, worker := permitted(t, "$JS.ACK.>")
	for range 3 {
		_, err := js.Publish(t.Context(), "s.a", nil)
		kit.Check(t, err)
	}
	consumer, err := js.Consumer(t.Context(), "S", "C")
	kit.Check(t, err)
	for range 2 {
		_, err := consumer.Next()
		kit.Check(t, err)
	}
	before, err := consumer.Info(t.Context())
	kit.Check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	for _, prefix := range []string{"$JS.ACK.S.C", "$JS.ACK._._.S.C"} {
		denied, err := Connection{Conn: worker}.deniesAck(ctx, prefix)
		kit.Check(t, err)
		if denied {
			t.Errorf("%s is denied", prefix)
		}
	}
	after, err := consumer.Info(t.Context())
	kit.Check(t, err)
	if after.NumAckPending != 2 || after.NumPending != 1 || after.AckFloor != before.AckFloor ||
		after.Delivered.Consumer != before.Delivered.Consumer {
		t.Errorf("%+v, before the probe %+v", after, before)
	}
}

// A worker without the permission reads nothing. Permissions may also change while it reads.
func TestWorkerWithoutAcknowledgementsReadsNothing(t *testing.T) {
	js, worker := permitted(t)
	_, err := js.Publish(t.Context(), "s.a", nil)
	kit.Check(t, err)
	tracker := quiet()
	feed, err := New(Settings{
		Connection: Connection{Conn: worker}, Stream: "S", Consumer: "C", Subject: "s.>",
		Capacity: 8, Budget: DefaultBudget, MayFetch: always, Tracker: tracker, Log: zap.NewNop(),
	})
	kit.Check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Bool
	go func() {
		_ = feed.Run(ctx)
		ended.Store(true)
	}()
	kit.Eventually(t, "the worker waits for the consumer", func() bool {
		return tracker.Unavailable(availability.Consumer)
	})
	const want = `"$JS.ACK.S.C.>"; give the user the permissions in docs/security.md`
	if waits := tracker.Waits(); len(waits) != 1 || !strings.Contains(waits[0].Reason, want) {
		t.Errorf("waits %+v, expected one with %q", waits, want)
	}
	info, err := js.Consumer(t.Context(), "S", "C")
	kit.Check(t, err)
	if n := info.CachedInfo().Delivered.Consumer; n != 0 || feed.IsBound() {
		t.Errorf("%d events were delivered (bound: %v), expected none", n, feed.IsBound())
	}
	err = feed.sameConsumer(t.Context(), info.CachedInfo())
	if !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a bound worker looks the consumer up: %v, expected the denial", err)
	}
	cancel()
	kit.Eventually(t, "the feed ends", ended.Load)
}
