package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"notifier/test/kit"
)

// Only clients with the token see the reasons in /readyz. A health check reads the token from the settings.
func TestTheReasonsNeedTheToken(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	const nowhere = "127.0.0.1:1"
	env := map[string]string{
		"NATS_URL": "nats://" + nowhere, "REDIS_URL": "redis://" + nowhere, "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_CHANNEL": "#alerts",
		"ADMIN_ADDR": "127.0.0.1:0", "ADMIN_TOKEN": token,
	}
	url := adminURL(t, &start(t, env, "serve").out)
	addr := strings.TrimPrefix(url, "http://")
	kit.Eventually(t, "it waits for Redis", func() bool {
		check := start(t, map[string]string{"ADMIN_ADDR": addr, "ADMIN_TOKEN": token}, "healthcheck")
		return check.code(t) == exitFailed && strings.Contains(check.errOut.String(), "redis: ")
	})
	if status, body := get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "not ready\n" {
		t.Errorf("without the token: %d %q, expected 503 and no reasons", status, body)
	}
	check := start(t, map[string]string{"ADMIN_ADDR": addr}, "healthcheck")
	if code := check.code(t); code != exitFailed || strings.Contains(check.errOut.String(), nowhere) {
		t.Errorf("healthcheck without the token: exit code %d, %s; expected %d without reasons", code, check.errOut.String(), exitFailed)
	}
	env["ADMIN_TOKEN"], env["ADMIN_TOKEN_FILE"] = "", filepath.Join(t.TempDir(), "empty")
	kit.Check(t, os.WriteFile(env["ADMIN_TOKEN_FILE"], []byte("\n"), 0o600))
	worker := start(t, env, "serve")
	if code := worker.code(t); code != exitUsage || !strings.Contains(worker.errOut.String(), "ADMIN_TOKEN_FILE: "+env["ADMIN_TOKEN_FILE"]+" is empty; expected ") {
		t.Errorf("with an empty file: exit code %d, %s; expected %d", code, worker.errOut.String(), exitUsage)
	}
}
