package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// TestPublishMayNotWait: who may not read outcomes gets one error, before anything is published.
func TestPublishMayNotWait(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{
			{Username: "all", Password: "hunter2"},
			{Username: "publisher", Password: "hunter2", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: []string{"notify.>"}},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_publisher.>"}},
			}},
		},
	})
	kit.Check(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(kit.Patience) {
		t.Fatal("no server")
	}
	js := kit.JetStream(t, "nats://all:hunter2@"+s.Addr().String())
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"notify.>"}})
	kit.Check(t, err)
	env := map[string]string{"NATS_URL": "nats://publisher:hunter2@" + s.Addr().String()}
	out, errOut := runToEnd(t, env, exitFailed, "publish", "errors", "-wait", "disk full")
	if out != "" || strings.Count(errOut, "\n") != 1 || strings.Contains(errOut, "hunter2") ||
		!strings.Contains(errOut, "-wait may not read the outcomes in stream NOTIFY_EVENTS: ") ||
		!strings.HasSuffix(errOut, "; docs/publishing.md names the permission; nothing was published\n") {
		t.Errorf("%q %q", out, errOut)
	}
	if n := messages(t, js, "NOTIFY"); n != 0 {
		t.Errorf("%d events, expected none", n)
	}
	if out, _ := runToEnd(t, env, exitDone, "publish", "errors", "disk full"); !strings.HasSuffix(out, "1 published to notify.errors\n") {
		t.Errorf("%q, expected that it may publish", out)
	}
}

// TestPublishWaitInterrupted: Ctrl-C ends the waiting at once; what was published has been shown.
func TestPublishWaitInterrupted(t *testing.T) {
	t.Parallel()
	_, env := startWithStreams(t)
	p := start(t, env, "publish", "errors", "-wait", "-timeout", "1h")
	kit.Eventually(t, "it is published", func() bool { return len(p.out.lines("1 published")) == 1 })
	p.terminate(t)
	p.ends(t, exitFailed)
	if got := p.errOut.String(); !strings.HasSuffix(got, "interrupted\n") {
		t.Errorf("%q", got)
	}
}
