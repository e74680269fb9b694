package app

import (
	"fmt"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/natstest"
)

// connected connects as a worker with these settings.
func connected(t *testing.T, change func(map[string]string)) *link {
	t.Helper()
	return connectedLogging(t, zap.NewNop(), change)
}

func connectedLogging(t *testing.T, log *zap.Logger, change func(map[string]string)) *link {
	t.Helper()
	env := map[string]string{}
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "xoxb-1", "C0123"
	change(env)
	s, err := settings.From(env)
	kit.Check(t, err)
	kit.Check(t, s.Store.Redis.Close())
	l, err := connectWorker(s.NATS, log)
	kit.Check(t, err)
	t.Cleanup(l.Close)
	return l
}

func (l *link) eventually(t *testing.T, reason string) {
	t.Helper()
	kit.Eventually(t, "the connection waits for "+reason, func() bool {
		why := l.why().Error()
		if strings.Contains(why, "hunter2") {
			t.Errorf("the reason shows a password: %s", why)
		}
		return strings.Contains(why, reason)
	})
}

// The latest failure is the reason, not the first one, and shows no password. A worker waits until it is
// accepted. A refusal comes with each attempt, and is logged once.
func TestTheReasonIsTheLatestFailure(t *testing.T) {
	t.Parallel()
	port, err := kit.FreePort()
	kit.Check(t, err)
	core, logs := observer.New(zapcore.DebugLevel)
	l := connectedLogging(t, zap.New(core), func(env map[string]string) {
		env["NATS_URL"] = fmt.Sprintf("nats://me:hunter2@127.0.0.1:%d", port)
	})
	l.eventually(t, "connection refused")
	server := func(user, password string) *natsserver.Server {
		t.Helper()
		return natstest.Server(t, &natsserver.Options{Port: port, Username: user, Password: password})
	}
	stranger := server("you", "other")
	l.eventually(t, "authorization violation")
	stopServer(stranger)
	l.eventually(t, "connection refused")
	own := server("me", "hunter2")
	kit.Eventually(t, "connected", l.IsConnected)
	stopServer(own)
	stranger = server("you", "other")
	kit.Eventually(t, "it is refused again and again", func() bool {
		state, err := stranger.Varz(nil)
		return err == nil && state.TotalConnections >= 4
	})
	l.eventually(t, "authorization violation")
	if n := logs.FilterMessage("nats error").Len(); n != 1 {
		t.Errorf("%d lines about refusals, expected one", n)
	}
}

// A user who may not publish to DROPPED_SUBJECT causes an error for each dropped event.
func TestErrorsOfTheServerDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t, &natsserver.Options{Port: -1})
	core, logs := observer.New(zapcore.DebugLevel)
	l := connectedLogging(t, zap.New(core), func(env map[string]string) { env["NATS_URL"] = server.ClientURL() })
	for range 10 * firstLogged {
		l.onError(l.Conn, nil, nats.ErrPermissionViolation)
	}
	if n := logs.FilterMessage("nats error").Len(); n != firstLogged {
		t.Errorf("%d lines, expected %d", n, firstLogged)
	}
}
