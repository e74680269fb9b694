package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"notifier/internal/preflight"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// checkAgainst runs "notifier check" and returns its rows.
func checkAgainst(t *testing.T, settings map[string]string, code int, flags ...string) (rows []preflight.Row) {
	t.Helper()
	out, _ := runToEnd(t, settings, code, append([]string{"check"}, flags...)...)
	if strings.Contains(out, secret) {
		t.Errorf("a secret is shown:\n%s", out)
	}
	row := regexp.MustCompile(`^(\S+) +(ok|warn|fail|skip) +(.+)`)
	for line := range strings.Lines(out) {
		if cells := row.FindStringSubmatch(line); cells != nil {
			rows = append(rows, preflight.Row{Name: cells[1], State: preflight.State(cells[2]), Message: cells[3]})
		}
	}
	return rows
}

// wantCheck expects a row with this text in its message.
func wantCheck(t *testing.T, rows []preflight.Row, name string, state preflight.State, text string) {
	t.Helper()
	for _, row := range rows {
		if row.Name == name && row.State == state && strings.Contains(row.Message, text) {
			return
		}
	}
	t.Errorf("no row %s %s %q in %+v", name, state, text, rows)
}

// TestCheckStrict: servers set up as in docs/security.md leave -strict nothing to warn of.
func TestCheckStrict(t *testing.T) {
	t.Parallel()
	settings := securedWorker(t, startSecured(t, securityBlock(t, "nats")))
	server := redistest.StartProcess(t, "--appendonly", "yes")
	server.SetUser(t, secret, "notifier", redisUser(t)...)
	settings["REDIS_URL"] = userURL(server, "notifier")
	delete(settings, "SHUTDOWN_TIMEOUT") // a short one is a warning
	rows := checkAgainst(t, settings, exitDone, "-strict")
	wantCheck(t, rows, "nats", preflight.OK, "no TLS")
	wantCheck(t, rows, "redis", preflight.OK, server.Addr)
}

// TestCheckNamesTheProxy: which proxy is used for Slack, and that it is the one that is gone.
func TestCheckNamesTheProxy(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"NATS_URL": "nats://127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1", "SLACK_CHANNEL": "C0123",
		"SLACK_BOT_TOKEN": "xoxb-" + secret, "HTTPS_PROXY": "http://me:" + secret + "@localhost:1",
	}
	rows := checkAgainst(t, env, exitFailed)
	wantCheck(t, rows, "slack/proxy", preflight.OK, "localhost:1")
	wantCheck(t, rows, "slack", preflight.Fail, "connection_refused: proxy localhost:1: connection refused; start the proxy")
	env["HTTPS_PROXY"] = "http://me:" + secret + "@localhost:port"
	out, errOut := runToEnd(t, env, exitUsage, "check")
	if strings.Contains(out+errOut, secret) || !strings.Contains(errOut, "HTTPS_PROXY: is not the URL of a proxy") {
		t.Errorf("%s%s", out, errOut)
	}
	_, errOut = runToEnd(t, env, exitUsage, "serve")
	if !strings.Contains(errOut, "HTTPS_PROXY: is not the URL of a proxy") {
		t.Errorf("%s", errOut)
	}
}

// TestCheckNamesTheAuthorities: an unreadable SSL_CERT_FILE is at fault, and not only an unknown authority.
func TestCheckNamesTheAuthorities(t *testing.T) {
	t.Parallel()
	secure, trust := kit.SlackTLS(t)
	if secure == nil {
		t.Skip("SSL_CERT_FILE has no effect here")
	}
	addr := kit.ServeTLS(t, http.NotFoundHandler(), secure)
	env := map[string]string{
		"NATS_URL": "nats://127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1", "SLACK_CHANNEL": "C0123",
		"SLACK_BOT_TOKEN": "xoxb-" + secret, "SLACK_API_URL": "https://" + addr + "/api/",
	}
	wantCheck(t, checkAgainst(t, with(env, trust), exitFailed), "slack", preflight.Fail, "http_404; set SLACK_API_URL")
	env["SSL_CERT_FILE"] = "/missing.pem"
	rows := checkAgainst(t, env, exitFailed)
	wantCheck(t, rows, "settings", preflight.Warn, "SSL_CERT_FILE cannot be read: open /missing.pem")
	wantCheck(t, rows, "slack", preflight.Fail, "unknown authority, and SSL_CERT_FILE cannot be read: open /missing.pem: "+
		"no such file or directory; correct SSL_CERT_FILE")
}
