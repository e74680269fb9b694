package main

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestBinary starts a worker before NATS and Redis. The worker reports the missing services, delivers once
// they are up, and exits with code 0 on SIGTERM.
func TestBinary(t *testing.T) {
	t.Parallel()
	binary := production.Build(t, programs)
	natsAddr, redisAddr := kit.FreeAddr(t), kit.FreeAddr(t)
	slack, err := devstack.StartSlack(ephemeralAddr)
	kit.Check(t, err)
	defer slack.Close()
	p := startCommand(t, exec.Command(binary, "serve"), map[string]string{
		"NATS_URL": "nats://me:hunter2@" + natsAddr, "REDIS_URL": "redis://" + redisAddr,
		"SLACK_BOT_TOKEN": "xoxb-hunter2", "SLACK_CHANNEL": "#alerts", "SLACK_API_URL": slack.APIURL(), "ADMIN_ADDR": ephemeralAddr,
	})
	out := &p.out
	admin := adminURL(t, out)
	kit.Eventually(t, "it says what it waits for", func() bool {
		return len(out.lines(`"for":"redis"`)) > 0 && len(out.lines("nats not connected")) > 0
	})
	for i := range 3 { // looks at it do not make it say so again
		if status, body := get(t, admin+"/healthz"); status != http.StatusOK {
			t.Errorf("look %d: /healthz %d %q, expected 200: it waits, and that is all right", i, status, body)
		}
		status, body := get(t, admin+"/readyz")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, natsAddr) || !strings.Contains(body, redisAddr) {
			t.Errorf("look %d: /readyz %d %q, expected 503 and the addresses of both services", i, status, body)
		}
	}
	for what, addr := range map[string]string{"nats": natsAddr, "redis": redisAddr} {
		if got := out.lines(`"level":"warn"`, what, addr); len(got) != 1 {
			t.Errorf("%d lines about %s at %s, expected one:\n%s", len(got), what, addr, strings.Join(got, "\n"))
		}
	}

	server, err := devstack.StartNATS(natsAddr, t.TempDir())
	kit.Check(t, err)
	defer server.Close()
	store, err := devstack.StartRedis(redisAddr)
	kit.Check(t, err)
	defer store.Close()
	if server.Addr() != natsAddr || store.Addr() != redisAddr {
		t.Skip("somebody else took the addresses in the meantime")
	}
	kit.Eventually(t, "ready", func() bool {
		status, _ := get(t, admin+"/readyz")
		return status == http.StatusOK
	})
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	kit.Check(t, connection.Publish("notify.errors", []byte("disk full")))
	kit.Eventually(t, "sent", func() bool { return len(out.lines("notification sent")) == 1 })

	p.terminate(t)
	p.ends(t, exitDone)
	if slack.Accepted() != 1 || p.errOut.String() != "" || strings.Contains(out.String(), "hunter2") {
		t.Errorf("%d messages, stderr %q, and the log:\n%s", slack.Accepted(), p.errOut.String(), out.String())
	}
}
