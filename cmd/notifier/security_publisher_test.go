//go:build !production

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/testkit"
)

// TestSecurityNATSPublisher: a publisher can publish events, and nothing else; above all it sees no others' events.
func TestSecurityNATSPublisher(t *testing.T) {
	t.Parallel()
	as := startSecured(t, securityBlock(t, "nats"))
	refused := make(chan error, 10)
	publisher, err := nats.Connect(as("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	testkit.Check(t, err)
	defer publisher.Close()
	all, err := nats.Connect(as("all"))
	testkit.Check(t, err)
	defer all.Close()
	for _, subject := range []string{"notify-dead.errors", "$JS.API.STREAM.DELETE.NOTIFY", "$JS.ACK.NOTIFY.notifier.1.1.1.1.1", "_INBOX.notifier.x"} {
		testkit.Check(t, publisher.Publish(subject, nil))
		wantRefused(t, refused, subject)
	}
	for _, subject := range []string{"_INBOX.notifier.>", "_INBOX.notifier.x.1", "notify.>", "notify-dead.>"} {
		if _, err := publisher.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
	heard, err := publisher.SubscribeSync("_INBOX.>") // it may: its own answers come there
	testkit.Check(t, err)
	for _, step := range []error{publisher.Flush(), all.Publish("_INBOX.notifier.x.1", []byte("an event")), all.Publish("_INBOX.own", []byte("mine")), all.Flush()} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if message, err := heard.NextMsg(testkit.Patience); err != nil || string(message.Data) != "mine" {
		t.Errorf("heard %+v, %v; expected its own answer and no event", message, err)
	}
}

// wantRefused waits until the server refuses a subject.
func wantRefused(t *testing.T, refused <-chan error, subject string) {
	t.Helper()
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
			t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(testkit.Patience):
		t.Errorf("%s is not refused", subject)
	}
}
