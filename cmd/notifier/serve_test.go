package main

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// startServices starts NATS, Redis and a Slack that speaks HTTPS, and returns the settings to use them.
func startServices(t *testing.T) (*devstack.NATS, *devstack.Slack, map[string]string) {
	t.Helper()
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	secure, trust := kit.SlackTLS(t)
	slack, err := devstack.StartSlackTLS(ephemeralAddr, secure)
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	return server, slack, with(map[string]string{
		"NATS_URL": server.URL(), "REDIS_URL": redistest.Start(t).Healed(t, "notifier").URL(),
		"SLACK_API_URL": slack.APIURL(), "ADMIN_ADDR": ephemeralAddr,
	}, trust)
}

// trustedRoots returns the roots that SSL_CERT_FILE names, for a worker in the test's own process. It returns
// nil if the fake Slack speaks plain HTTP.
func trustedRoots(t *testing.T, env map[string]string) *x509.CertPool {
	t.Helper()
	file := env["SSL_CERT_FILE"]
	if file == "" {
		return nil
	}
	certificate, err := https.Load(file)
	kit.Check(t, err)
	return certificate.Pool()
}

// services is startServices with the other required settings, and some changed.
func services(t *testing.T, changed map[string]string) (*devstack.NATS, *devstack.Slack, map[string]string) {
	t.Helper()
	server, slack, env := startServices(t)
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"] = "xoxb-1", "#alerts"
	return server, slack, with(env, changed)
}

// worker starts a worker with services of its own.
func worker(t *testing.T, changed map[string]string) (*process, *devstack.NATS, *devstack.Slack) {
	t.Helper()
	server, slack, env := services(t, changed)
	return start(t, env), server, slack // no command: serve
}

// publishes runs "notifier publish" to its end.
func publishes(t *testing.T, env map[string]string, arguments ...string) {
	t.Helper()
	runToEnd(t, env, exitDone, append([]string{"publish"}, arguments...)...)
}

// startReady starts a worker and waits until it is ready.
func startReady(t *testing.T, env map[string]string) *process {
	t.Helper()
	p := start(t, env)
	readyURL(t, &p.out)
	return p
}

// TestServe is the life of one worker: it gets ready, sends events within the limit, logs every event, and
// ends.
func TestServe(t *testing.T) {
	t.Parallel()
	server, slack, env := services(t, map[string]string{"LIMIT_CATEGORY": "2/1h", "SHUTDOWN_TIMEOUT": "5s"})
	p := startReady(t, env)
	admin := adminURL(t, &p.out)
	if out, _ := runToEnd(t, env, exitDone, "check"); !strings.Contains(out, "workspace Fake Workspace, user notifier") {
		t.Errorf("check does not know the workspace:\n%s", out)
	}
	if status, body := get(t, admin+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}

	publishes(t, env, "errors", "-n", "3", "disk full")
	publishes(t, env, "deploys", "-json", `{"text":"v1.2.3 is out","id":"v1.2.3"}`)
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	kit.Check(t, connection.Publish("notify.deploys", []byte(`{"text":7}`)))
	kit.Eventually(t, "all five settled", func() bool { return len(p.out.lines(`"outcome":`)) == 5 })
	p.terminate(t)
	stopped := time.Now()
	p.ends(t, exitDone)
	if took := time.Since(stopped); took > 5*time.Second {
		t.Errorf("it took %s to end, expected at most SHUTDOWN_TIMEOUT", took)
	}
	if status, _ := get(t, admin+"/readyz"); status != 0 {
		t.Errorf("the admin server is still there and says %d", status)
	}

	if slack.Accepted() != 3 {
		t.Errorf("%d messages in Slack, expected 3", slack.Accepted())
	}
	for outcome, want := range map[string]int{"sent": 3, "dropped": 1, "dead": 1} {
		if got := len(p.out.lines(`"msg":"notification `+outcome+`"`, `"outcome":"`+outcome+`"`)); got != want {
			t.Errorf("%d lines of events %s, expected %d", got, outcome, want)
		}
	}
	if p.errOut.String() != "" {
		t.Errorf("on stderr: %q", p.errOut.String())
	}
	checkLog(t, &p.out)
}

// TestServeDrainsWhenItsTerminalCloses: SIGHUP ends a worker as SIGTERM does, after the post under way.
func TestServeDrainsWhenItsTerminalCloses(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, nil)
	p := startReady(t, env)
	slack.Respond(devstack.Always(devstack.Response{Delay: time.Second}))
	publishes(t, env, "errors", "disk full")
	kit.Eventually(t, "it is being posted", func() bool { return slack.Requests() > 0 })
	kit.Check(t, p.command.Process.Signal(syscall.SIGHUP))
	p.ends(t, exitDone)
	if sent := p.out.lines(`"outcome":"sent"`); len(sent) != 1 {
		t.Errorf("%d lines of sent events, expected one", len(sent))
	}
	lines := p.out.lines()
	if last := lines[len(lines)-1]; logLine(t, last)["msg"] != "stopped" {
		t.Errorf("the last line: %s", last)
	}
}

// checkLog checks the promised fields of the log lines.
func checkLog(t *testing.T, out *output) {
	t.Helper()
	always := []string{"level", "ts", "msg"}
	settled := append(always, "event_id", "category", "subject", "outcome", "stream_seq")
	for _, line := range out.lines() {
		fields := logLine(t, line)
		ts, _ := fields["ts"].(string)
		if _, err := time.Parse("2006-01-02T15:04:05.000000Z", ts); err != nil {
			t.Errorf("ts of %s: %v", line, err)
		}
		want := always
		switch fields["outcome"] {
		case "sent":
			want = append(settled, "channel", "slack_ts", "attempts", "latency_ms")
		case "dropped":
			want = append(settled, "reason", "limit", "retry_after_s")
			if fields["limit"] != "2/1h" || fields["reason"] != "category" || fields["subject"] != "notify.errors" {
				t.Errorf("dropped: %s", line)
			}
		case "dead":
			want = append(settled, "reason", "detail", "letter_seq")
			if fields["reason"] != "malformed" || fields["level"] != "warn" {
				t.Errorf("dead: %s", line)
			}
		}
		for _, name := range want {
			if _, there := fields[name]; !there {
				t.Errorf("no %s in %s", name, line)
			}
		}
		if fields["outcome"] != nil && len(fields) != len(want) {
			t.Errorf("fields that nothing is promised of, in %s", line)
		}
		if strings.Contains(line, "disk full") || strings.Contains(line, "is out") {
			t.Errorf("a text is logged: %s", line)
		}
	}
	first, last := out.lines()[0], out.lines()[len(out.lines())-1]
	if started := logLine(t, first); started["msg"] != "starting" || started["limit_global"] != "100/30m" || started["limit_category"] != "2/1h" ||
		started["limit_group"] != "" || started["limit_reserve"] != 0.0 {
		t.Errorf("the first line: %s", first)
	}
	if logLine(t, last)["msg"] != "stopped" {
		t.Errorf("the last line: %s", last)
	}
}

// TestServeWebhook posts through a webhook, and writes lines for people.
func TestServeWebhook(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"SLACK_BOT_TOKEN": "", "LOG_FORMAT": "console"})
	env["SLACK_WEBHOOK_URL"] = slack.WebhookURL()
	createStreams(t, kit.JetStream(t, env["NATS_URL"]))
	publishes(t, env, "errors", "disk full")
	p := start(t, env, "serve")
	kit.Eventually(t, "it is logged", func() bool { return len(p.out.lines("notification sent")) > 0 })
	p.terminate(t)
	p.ends(t, exitDone)
	line := p.out.lines("notification sent")[0]
	if json.Valid([]byte(line)) || !strings.Contains(line, "\tINFO\tnotification sent\t") || strings.Contains(line, "\x1b") {
		t.Errorf("console line %q, expected one for people, without colours", line)
	}
}

// TestServeFails: an error that waiting does not fix ends serve with exit code 1 and is reported in the log
// and on standard error.
func TestServeFails(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, nil)
	other := start(t, env)
	taken := strings.TrimPrefix(adminURL(t, &other.out), "http://")
	p := start(t, with(env, map[string]string{"ADMIN_ADDR": taken}))
	p.ends(t, exitFailed)
	want := "ADMIN_ADDR: admin server: listen tcp " + taken + ": bind: address already in use"
	if got := p.errOut.String(); got != "notifier: "+want+"\n" {
		t.Errorf("%q on stderr, expected %q", got, want)
	}
	if got := p.out.lines(`"level":"error"`, `"msg":"stopped"`, want); len(got) != 1 {
		t.Errorf("in the log: %q, expected one line with %q", got, want)
	}
	other.terminate(t)
	other.ends(t, exitDone)
}
