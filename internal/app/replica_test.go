package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"notifier/internal/buildinfo"
	"notifier/internal/devstack"
	"notifier/internal/snapshot"
	"notifier/test/kit"
)

// TestSnapshotOfARunningWorker follows a worker through an outage of Slack and one of Redis.
func TestSnapshotOfARunningWorker(t *testing.T) {
	t.Parallel()
	redis, err := devstack.StartRedis("127.0.0.1:0")
	kit.Check(t, err)
	defer func() { _ = redis.Close() }()
	slack, err := devstack.StartSlack("127.0.0.1:0")
	kit.Check(t, err)
	defer func() { _ = slack.Close() }()
	natsURL := ""
	s := servers(t, func(env map[string]string) {
		natsURL = env["NATS_URL"]
		env["REDIS_URL"], env["SLACK_API_URL"], env["ADMIN_ADDR"] = redis.URL(), slack.APIURL(), ""
	})
	log := zap.NewNop()
	a := &app{settings: s, log: log, cleanups: cleanups{log: log}}
	ctx, cancel := context.WithCancel(t.Context())
	kit.Check(t, a.wire(ctx))
	a.replica.settings = snapshot.Settings{Hash: "6f1c0000"}
	if now := a.snapshot(); now.Ready || now.ID == "" || now.Version != buildinfo.Version() || now.Started.IsZero() {
		t.Errorf("before the start: %+v", now)
	}
	kit.Check(t, a.start(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	defer func() {
		cancel()
		kit.Check(t, <-ended)
		a.stop()
	}()
	var now snapshot.Snapshot
	eventually := func(what string, holds func() bool) {
		t.Helper()
		if !kit.Within(kit.Patience, func() bool { now = a.snapshot(); return holds() }) {
			t.Fatalf("not %s: %+v", what, now)
		}
	}
	eventually("ready, with its streams", func() bool {
		return now.Ready && len(now.NotReady) == 0 && len(now.Streams) == 2 && now.Streams[0].Unread != nil
	})
	if now.Held != 0 || !now.LastSent.IsZero() || now.Settings.Hash != "6f1c0000" || time.Since(now.Time) > time.Minute {
		t.Errorf("at work: %+v", now)
	}

	slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	_, err = kit.JetStream(t, natsURL).Publish(t.Context(), "notify.errors", []byte("disk full"))
	kit.Check(t, err)
	eventually("waiting for the channel", func() bool {
		return len(now.Waits) == 1 && now.Waits[0].Channel == "C0123" && now.Held == 1 && now.HeldFor["slack"] == 1 &&
			now.Channels[0].Queued == 1 && len(now.Failing) == 1 && now.InFlight == 1
	})
	if !now.Ready {
		t.Errorf("not ready because of Slack: %q", now.NotReady)
	}
	slack.Respond(nil)
	eventually("sending again", func() bool {
		return !now.LastSent.IsZero() && len(now.Waits) == 0 && now.Held == 0 && len(now.Failing) == 0
	})

	kit.Check(t, redis.Close())
	eventually("waiting for Redis", func() bool {
		return !now.Ready && strings.HasPrefix(strings.Join(now.NotReady, "\n"), "redis: ")
	})
	began := time.Now()
	for range 100 {
		a.snapshot()
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("100 snapshots took %s without Redis, expected no requests", took)
	}
}
