package app

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(8)
	reconnectWait, reconnectJitter = 50*time.Millisecond, 10*time.Millisecond
	goleak.VerifyTestMain(m, kit.NATSServerEnds()...)
}

// servers starts NATS, Redis and Slack, and returns settings of a worker for them.
func servers(t *testing.T, change func(env map[string]string)) settings.Settings {
	t.Helper()
	nats, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = nats.Close() })
	redis, err := devstack.StartRedis("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = redis.Close() })
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	env := map[string]string{}
	env["NATS_URL"], env["REDIS_URL"], env["SLACK_API_URL"], env["ADMIN_ADDR"] = nats.URL(), redis.URL(), slack.APIURL(), "127.0.0.1:0"
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "xoxb-1", "C0123"
	change(env)
	s, err := settings.From(env)
	kit.Check(t, err)
	return s
}

// closed are the parts that were taken down, in order.
func closed(logs *observer.ObservedLogs) []string {
	var parts []string
	for _, entry := range logs.FilterMessage("closing").All() {
		parts = append(parts, entry.ContextMap()["part"].(string))
	}
	return parts
}

// TestTeardown: the last counts are written while Redis is there, and the admin server reports "not ready"
// until the worker has drained.
func TestTeardown(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := servers(t, func(map[string]string) {})
	go func() { ended <- Run(ctx, s, zap.New(core), nil) }()
	kit.Eventually(t, "the worker has started", func() bool { return logs.FilterMessage("admin server listens").Len() > 0 })
	cancel()
	kit.Check(t, <-ended)
	if got, want := closed(logs), []string{"background jobs", "admin server", "traces", "nats", "slack", "redis"}; !slices.Equal(got, want) {
		t.Errorf("closed %q, expected %q", got, want)
	}
	if err := s.Store.Redis.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("the Redis client of the settings: %v, expected it to be closed", err)
	}
}

// TestFailedStart: a failure takes down the parts that were started, and no others.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	// no address of this machine
	s := servers(t, func(env map[string]string) { env["ADMIN_ADDR"] = "192.0.2.1:1" })
	if err := Run(t.Context(), s, zap.New(core), nil); err == nil || !strings.HasPrefix(err.Error(), "ADMIN_ADDR: ") {
		t.Errorf("%v, expected an error that names the setting", err)
	}
	if got, want := closed(logs), []string{"traces", "nats", "slack", "redis"}; !slices.Equal(got, want) {
		t.Errorf("closed %q, expected %q", got, want)
	}
}
