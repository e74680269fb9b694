package main

import (
	"net/http"
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestCauseIsShown: the log, check, status and why name the cause of a failed post. Here the server sends
// frames of HTTP/2.
func TestCauseIsShown(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, map[string]string{"SHUTDOWN_TIMEOUT": "1s"})
	secure, trust := kit.SlackTLS(t)
	frames := kit.ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = connection.Write([]byte("\x00\x00\x1e\x04\x00\r\n"))
		_ = connection.Close()
	}), secure)
	env = with(env, trust)
	env["SLACK_API_URL"] = strings.SplitAfter(env["SLACK_API_URL"], "://")[0] + frames + "/api/"
	const cause = "network_error: malformed HTTP response: a frame of HTTP/2"

	p := startReady(t, env)
	publishes(t, env, "-id", "e1", "errors", "disk full")
	kit.Eventually(t, "the log has the cause", func() bool {
		return len(p.out.lines(`"msg":"waiting"`, `"for":"slack"`, cause)) > 0
	})
	eventuallySays(t, "status has the cause", env, []string{"status"}, func(out string) bool { return strings.Contains(out, "Slack fails with "+cause) })
	eventuallySays(t, "why has the cause", env, []string{"why", "e1"}, func(out string) bool { return strings.Contains(out, "last error "+cause) })
	if out, _ := runToEnd(t, env, exitFailed, "check"); !strings.Contains(out, cause) {
		t.Errorf("check does not name the cause:\n%s", out)
	}
	p.terminate(t)
	p.ends(t, exitDone)
}
