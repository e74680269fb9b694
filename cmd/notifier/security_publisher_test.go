package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// TestSecurityNATSPublisher: a publisher can publish events, and nothing else.
func TestSecurityNATSPublisher(t *testing.T) {
	t.Parallel()
	as := startSecured(t, securityBlock(t, "nats"))
	refused := make(chan error, 10)
	publisher, err := nats.Connect(as("publisher"), nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	kit.Check(t, err)
	defer publisher.Close()
	for _, subject := range []string{
		"notify-dead.errors", "$JS.API.STREAM.DELETE.NOTIFY", "$JS.ACK.NOTIFY.notifier.1.1.1.1.1",
		"_NOTIFIER.NOTIFY.worker.x", "_INBOX.x", "_INBOX_publisher.x",
	} {
		kit.Check(t, publisher.Publish(subject, nil))
		wantRefused(t, refused, subject)
	}
	for _, subject := range []string{
		"_NOTIFIER.NOTIFY.worker.>", "_NOTIFIER.>", "_INBOX.>", "_INBOX.x.1", "notify.>", "notify-dead.>",
		">",
	} {
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
	as := startSecured(t, strings.Replace(
		securityBlock(t, "nats"), `allow: ["notify.>"]`, `allow: ["notify.billing.>"]`, 1))
	createStreams(t, kit.JetStream(t, as("all")))
	env := map[string]string{"NATS_URL": as("publisher")}
	out, errOut := runToEnd(t, env, exitFailed, "publish", "errors", "disk full")
	if out != "0 published to notify.errors\n" || strings.Count(errOut, "\n") != 1 ||
		!strings.Contains(errOut, `Permissions Violation for Publish to "notify.errors"`) ||
		!strings.Contains(errOut, "docs/security.md") {
		t.Errorf("%q %q", out, errOut)
	}
	runToEnd(t, env, exitDone, "publish", "billing.refunds", "a refund failed")
}

// TestPublishFindsItsInbox: publish receives acknowledgements wherever its user may subscribe: to the inboxes
// of publishers, of operators or of any client. Without any of them it publishes nothing and says so.
func TestPublishFindsItsInbox(t *testing.T) {
	t.Parallel()
	const documented = `subscribe: {allow: ["_INBOX_publisher.>"]}`
	for name, inbox := range map[string]string{
		"publisher": "_INBOX_publisher.>",
		"client":    "_INBOX.>",
		"stranger":  "_INBOX_billing.>",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configuration := securityBlock(t, "nats")
			if strings.Count(configuration, documented) != 1 {
				t.Fatalf("docs/security.md grants a publisher something other than %s", documented)
			}
			as := startSecured(t, strings.Replace(
				configuration, documented, `subscribe: {allow: ["`+inbox+`"]}`, 1))
			js := kit.JetStream(t, as("all"))
			createStreams(t, js)
			env := map[string]string{"NATS_URL": as("publisher")}
			if name != "stranger" {
				out, errOut := runToEnd(t, env, exitDone, "publish", "errors", "-n", "2", "disk full")
				if out != "2 published to notify.errors\n" || errOut != "" {
					t.Errorf("%q %q", out, errOut)
				}
				return
			}
			out, errOut := runToEnd(t, env, exitFailed, "publish", "errors", "disk full")
			const want = "notifier: NATS: no permission to receive acknowledgements; " +
				"allow this user to subscribe to _INBOX_publisher.> (docs/security.md)\n"
			if out != "" || errOut != want || messages(t, js, "NOTIFY") != 0 {
				t.Errorf("%q %q, expected %q", out, errOut, want)
			}
		})
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
