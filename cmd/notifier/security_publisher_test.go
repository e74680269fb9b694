package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestSecurityNATSPublisher: a publisher can publish events, and nothing else.
func TestSecurityNATSPublisher(t *testing.T) {
	t.Parallel()
	as := startSecured(t, securityBlock(t, "nats"))
	refused := make(chan error, 10)
	publisher, err := nats.Connect(as("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	kit.Check(t, err)
	defer publisher.Close()
	for _, subject := range []string{
		"notify-dead.errors", "$JS.API.STREAM.DELETE.NOTIFY", "$JS.ACK.NOTIFY.notifier.1.1.1.1.1",
		"_NOTIFIER.NOTIFY.worker.x", "_INBOX.x", "_INBOX_publisher.x",
	} {
		kit.Check(t, publisher.Publish(subject, nil))
		wantRefused(t, refused, subject)
	}
	for _, subject := range []string{"_NOTIFIER.NOTIFY.worker.>", "_NOTIFIER.>", "_INBOX.>", "_INBOX.x.1", "notify.>", "notify-dead.>", ">"} {
		if _, err := publisher.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
}

// TestSecurityNATSPublishDenied: publish names a denied subject at once and does not count the event as
// published.
func TestSecurityNATSPublishDenied(t *testing.T) {
	t.Parallel()
	as := startSecured(t, strings.Replace(securityBlock(t, "nats"), `allow: ["notify.>"]`, `allow: ["notify.billing.>"]`, 1))
	began := time.Now()
	p := start(t, map[string]string{"NATS_URL": as("publisher")}, "publish", "errors", "disk full")
	if code := p.code(t); code != exitFailed || !strings.Contains(p.out.String(), "0 published") {
		t.Errorf("exit code %d, %s", code, p.out.String())
	}
	if got := p.errOut.String(); !strings.Contains(got, `Permissions Violation for Publish to "notify.errors"`) || !strings.Contains(got, "docs/security.md") {
		t.Error(got)
	}
	if took := time.Since(began); took > settings.NATSTimeout {
		t.Errorf("it took %s", took)
	}
	as = startSecured(t, securityBlock(t, "nats"))
	createStreams(t, kit.JetStream(t, as("all")))
	p = start(t, map[string]string{"NATS_URL": as("publisher")}, "publish", "errors", "-inbox-prefix", "_INBOX", "disk full")
	if code := p.code(t); code != exitFailed || !strings.Contains(p.errOut.String(), `Permissions Violation for Subscription to "_INBOX.`) {
		t.Errorf("exit code %d, %s", code, p.errOut.String())
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
	case <-time.After(kit.Patience):
		t.Errorf("%s is not refused", subject)
	}
}
