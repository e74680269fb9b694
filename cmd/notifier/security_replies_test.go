package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// TestSecurityNATSReplies: a publisher's choice of reply subjects has only the effects that the document
// describes. The server refuses some reply subjects and sends its acknowledgement to all others.
func TestSecurityNATSReplies(t *testing.T) {
	t.Parallel()
	as := startSecured(t, securityBlock(t, "nats"))
	js := kit.JetStream(t, as("all"))
	createStreams(t, js)
	for range 30 { // an acknowledgement has a seq, which PURGE and MSG.DELETE would read as theirs
		_, err := js.Publish(t.Context(), "notify-dead.errors", []byte("a letter"))
		kit.Check(t, err)
	}
	refused := make(chan error, 10)
	publisher, err := nats.Connect(as("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	kit.Check(t, err)
	defer publisher.Close()
	for _, reply := range []string{"$JS.ACK.NOTIFY.notifier.1.1.1.1.1", "_R_.x"} {
		kit.Check(t, publisher.PublishRequest("notify.errors", reply, []byte("hello")))
		wantRefused(t, refused, reply)
	}
	requests := []string{
		"STREAM.DELETE.NOTIFY", "STREAM.PURGE.NOTIFY", "STREAM.UPDATE.NOTIFY", "STREAM.MSG.DELETE.NOTIFY", "STREAM.DELETE.NOTIFY_DEAD",
		"STREAM.PURGE.NOTIFY_DEAD", "STREAM.MSG.DELETE.NOTIFY_DEAD", "STREAM.RESTORE.NOTIFY", "STREAM.LEADER.STEPDOWN.NOTIFY",
		"CONSUMER.DELETE.NOTIFY.notifier", "CONSUMER.PAUSE.NOTIFY.notifier", "CONSUMER.UNPIN.NOTIFY.notifier",
		"CONSUMER.CREATE.NOTIFY.notifier", "CONSUMER.DURABLE.CREATE.NOTIFY.notifier", "CONSUMER.MSG.NEXT.NOTIFY.notifier",
	}
	for _, request := range requests {
		kit.Check(t, publisher.PublishRequest("notify.errors", "$JS.API."+request, []byte("hello")))
	}
	kit.Check(t, publisher.PublishRequest("notify.errors", "notify-dead.forged", []byte("hello")))
	kit.Eventually(t, "the last acknowledgement is among the letters", func() bool { return stateOf(t, js, "NOTIFY_DEAD").LastSeq == 31 })
	events, letters := stateOf(t, js, "NOTIFY"), stateOf(t, js, "NOTIFY_DEAD")
	if want := uint64(len(requests) + 1); events.Msgs != want || events.LastSeq != want || letters.Msgs != 31 {
		t.Errorf("events %+v and letters %+v, expected %d and 31, and none deleted", events, letters, want)
	}
	consumer, err := js.Consumer(t.Context(), "NOTIFY", "notifier")
	kit.Check(t, err)
	if info := consumer.CachedInfo(); info.Paused || info.Delivered.Stream != 0 || info.AckFloor.Stream != 0 {
		t.Errorf("the consumer %+v, expected it as it was", info)
	}
	p := start(t, map[string]string{"NATS_URL": as("operator")}, "dead", "replay", "-all")
	if p.code(t); !strings.Contains(p.out.String(), "0 replayed, 31 left") {
		t.Errorf("dead replay: %s", p.out.String())
	}
}

// stateOf is the state of a stream.
func stateOf(t *testing.T, js jetstream.JetStream, stream string) jetstream.StreamState {
	t.Helper()
	found, err := js.Stream(t.Context(), stream)
	kit.Check(t, err)
	return found.CachedInfo().State
}
