package main

import (
	"strings"
	"testing"

	"notifier/internal/status"
)

// TestOrdersAreCheckedAgainstTheWorkersSettings gives orders from a shell with other limits and another
// subject than the running worker.
func TestOrdersAreCheckedAgainstTheWorkersSettings(t *testing.T) {
	t.Parallel()
	_, _, workers := services(t, map[string]string{"LIMIT_RESERVE": "payments=5", "NATS_SUBJECT": "alerts.>"})
	shell := with(workers, map[string]string{"LIMIT_RESERVE": "errors=5", "NATS_SUBJECT": "notify.*"})
	says := func(when string, code int, want string, arguments ...string) {
		t.Helper()
		out, errOut := runToEnd(t, shell, code, arguments...)
		if !strings.Contains(out+errOut, want) {
			t.Errorf("%s, %q: %q %q, expected %q", when, arguments, out, errOut, want)
		}
	}
	buckets := []string{"10/30m:1m", "-for", "1h"}
	limit := func(category string) []string {
		return append([]string{"limit", "set", "category/" + category}, buckets...)
	}
	mute := func(pattern string) []string { return []string{"mute", "add", pattern, "-for", "1h"} }

	says("no worker", exitUsage, "slots are reserved for errors", limit("errors")...)
	says("no worker", exitDone, "UNTIL", limit("payments")...)
	runToEnd(t, shell, exitDone, "limit", "end", "category/payments")

	startReady(t, workers)
	eventuallyStatus(t, "the worker shows its settings", shell, func(now status.State) bool {
		return len(now.Replicas) == 1 && now.Replicas[0].State == "ready"
	})
	says("a worker", exitDone, "UNTIL", limit("errors")...)
	says("a worker", exitUsage, "slots are reserved for payments", limit("payments")...)
	says("a worker", exitDone, "UNTIL", mute("errors.db")...)
	says("a worker", exitUsage, `repeats the prefix of NATS_SUBJECT "alerts.>"`, mute("alerts.errors")...)
	says("a worker", exitUsage, `repeats the prefix of NATS_SUBJECT "alerts.>"`, "status", "alerts.errors")
}
