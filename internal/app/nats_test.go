package app

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// Passwords are spelled so that no other text has them.
const (
	oldPassword = "hunter2old"
	newPassword = "hunter2new"
)

// natsWorker is a worker, and its server with a password.
type natsWorker struct {
	*app
	server *devstack.NATS
	slack  *devstack.Slack
	logs   *observer.ObservedLogs
}

// startNATSWorker starts a server that accepts one password, and a worker that has another one or the same.
func startNATSWorker(t *testing.T, accepted, given string) *natsWorker {
	t.Helper()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	kit.Check(t, server.Authorize("notifier", accepted))
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	w := &natsWorker{server: server, slack: slack}
	s := servers(t, func(env map[string]string) {
		env["NATS_URL"], env["SLACK_API_URL"] = w.url(given), slack.APIURL()
		env["ADMIN_ADDR"] = ""
	})
	core, logs := observer.New(zapcore.DebugLevel)
	w.logs = logs
	log := zap.New(core)
	ctx, cancel := context.WithCancel(t.Context())
	w.app = &app{settings: s, log: log, cleanups: cleanups{log: log}}
	kit.Check(t, w.wire(ctx))
	kit.Check(t, w.start(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		kit.Check(t, <-ended)
		w.stop()
		for _, entry := range logs.All() {
			if line := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(line, "hunter2") {
				t.Errorf("a password is logged: %s", line)
			}
		}
	})
	return w
}

func (w *natsWorker) url(password string) string {
	return "nats://notifier:" + password + "@" + w.server.Addr()
}

// waitsFor waits until /readyz gives this reason.
func (w *natsWorker) waitsFor(t *testing.T, reason string) {
	t.Helper()
	kit.Eventually(t, "the worker waits for nats: "+reason, func() bool {
		said := strings.Join(w.worker.Ready(t.Context()), "\n")
		if strings.Contains(said, "hunter2") {
			t.Errorf("/readyz shows a password: %s", said)
		}
		return strings.Contains(said, "nats: no connection to "+w.server.URL()+": "+reason)
	})
}

// sends waits until the worker is ready, and has it send an event.
func (w *natsWorker) sends(t *testing.T, password string) {
	t.Helper()
	kit.Eventually(t, "the worker is ready", func() bool { return len(w.worker.Ready(t.Context())) == 0 })
	connection, err := nats.Connect(w.url(password))
	kit.Check(t, err)
	defer connection.Close()
	before := w.slack.Accepted()
	kit.Check(t, connection.Publish("notify.errors", []byte("hello")))
	kit.Eventually(t, "the event is sent", func() bool { return w.slack.Accepted() == before+1 })
}

// A worker that the server refuses waits until it is accepted, at the start and later, and never shows its password.
func TestRefusedWorkerWaits(t *testing.T) {
	t.Parallel()
	w := startNATSWorker(t, newPassword, oldPassword)
	w.waitsFor(t, "authorization violation")
	if lines := w.logs.FilterMessage("nats not connected yet").All(); len(lines) != 1 || lines[0].ContextMap()["reason"] != "authorization violation" {
		t.Errorf("lines %v, expected one with the reason", lines)
	}
	for range 2 {
		kit.Check(t, w.server.Authorize("notifier", oldPassword))
		w.sends(t, oldPassword)
		kit.Check(t, w.server.Authorize("notifier", newPassword))
		w.waitsFor(t, "authorization violation")
	}
	if n := w.logs.FilterMessage("nats error").Len(); n > 3 {
		t.Errorf("%d lines about refusals, expected one for each outage", n)
	}
	w.server.Stop()
	w.waitsFor(t, "dial tcp "+w.server.Addr()+": connect: connection refused")
	kit.Check(t, w.server.Start())
	kit.Check(t, w.server.Authorize("notifier", oldPassword))
	w.sends(t, oldPassword)
}

// connected connects as a worker with these settings.
func connected(t *testing.T, change func(map[string]string)) *link {
	t.Helper()
	env := map[string]string{}
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "xoxb-1", "C0123"
	change(env)
	s, err := settings.From(env)
	kit.Check(t, err)
	kit.Check(t, s.Store.Redis.Close())
	l, err := connectWorker(s.NATS, zap.NewNop())
	kit.Check(t, err)
	t.Cleanup(l.Close)
	return l
}

func (l *link) eventually(t *testing.T, reason string) {
	t.Helper()
	kit.Eventually(t, "the connection waits for "+reason, func() bool { return strings.Contains(l.why().Error(), reason) })
}

// The latest failure is the reason, not the first one.
func TestTheReasonIsTheLatestFailure(t *testing.T) {
	t.Parallel()
	port, err := kit.FreePort()
	kit.Check(t, err)
	l := connected(t, func(env map[string]string) { env["NATS_URL"] = fmt.Sprintf("nats://me:hunter2@127.0.0.1:%d", port) })
	l.eventually(t, "connection refused")
	server := kit.NATSServer(t, &natsserver.Options{Port: port, Username: "you", Password: "other"})
	l.eventually(t, "authorization violation")
	server.Shutdown()
	server.WaitForShutdown()
	l.eventually(t, "connection refused")
}

// Two deployments share a server: each has its own streams.
func TestTwoStreamsOnOneServer(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	for _, name := range []string{"NOTIFY", "ALERTS"} {
		s := servers(t, func(env map[string]string) {
			env["NATS_URL"], env["NATS_STREAM"], env["NATS_SUBJECT"], env["ADMIN_ADDR"] = server.URL(), name, strings.ToLower(name)+".>", ""
		})
		log := zap.NewNop()
		a := &app{settings: s, log: log, cleanups: cleanups{log: log}}
		ctx, cancel := context.WithCancel(t.Context())
		kit.Check(t, a.wire(ctx))
		kit.Check(t, a.start(ctx))
		ended := make(chan error, 1)
		go func() { ended <- a.run(ctx) }()
		t.Cleanup(func() {
			cancel()
			kit.Check(t, <-ended)
			a.stop()
		})
		kit.Eventually(t, name+" is ready", func() bool { return len(a.worker.Ready(t.Context())) == 0 })
	}
	js := kit.JetStream(t, server.URL())
	for name, subject := range map[string]string{"NOTIFY_DEAD": "notify-dead.>", "ALERTS_DEAD": "alerts-dead.>"} {
		kit.Eventually(t, name+" takes "+subject, func() bool {
			stream, err := js.Stream(t.Context(), name)
			return err == nil && stream.CachedInfo().Config.Subjects[0] == subject
		})
	}
}

// TestAWorkersOwnEndIsNoDisconnection: nats.go calls back for it in its own time, and "stopped" is to be the
// last line.
func TestAWorkersOwnEndIsNoDisconnection(t *testing.T) {
	t.Parallel()
	s := servers(t, func(map[string]string) {})
	t.Cleanup(func() { _ = s.Store.Redis.Close() })
	core, logs := observer.New(zapcore.DebugLevel)
	connection, err := connectWorker(s.NATS, zap.New(core))
	kit.Check(t, err)
	kit.Eventually(t, "connected", func() bool { return logs.FilterMessage("nats connected").Len() > 0 })
	connection.Close()
	logged := func() bool { return logs.FilterMessage("nats disconnected").Len() > 0 }
	if kit.Within(200*time.Millisecond, logged) {
		t.Errorf("%v", logs.All())
	}
}
