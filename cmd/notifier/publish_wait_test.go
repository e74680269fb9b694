package main

import (
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestPublishMayNotWait: who may not read outcomes gets one error, before anything is published.
func TestPublishMayNotWait(t *testing.T) {
	t.Parallel()
	as := startSecured(t, securityBlock(t, "nats"))
	js := kit.JetStream(t, as("all"))
	createStreams(t, js)
	env := map[string]string{"NATS_URL": as("publisher")}
	out, errOut := runToEnd(t, env, exitFailed, "publish", "errors", "-wait", "disk full")
	if out != "" || strings.Count(errOut, "\n") != 1 || strings.Contains(errOut, secret) ||
		!strings.Contains(errOut, "-wait may not read stream NOTIFY_EVENTS: ") ||
		!strings.HasSuffix(errOut, "; docs/publishing.md names the permission; nothing was published\n") {
		t.Errorf("%q %q", out, errOut)
	}
	if n := messages(t, js, "NOTIFY"); n != 0 {
		t.Errorf("%d events, expected none", n)
	}
	out, _ = runToEnd(t, env, exitDone, "publish", "errors", "disk full")
	if !strings.HasSuffix(out, "1 published to notify.errors\n") {
		t.Errorf("%q, expected that it may publish", out)
	}
}
