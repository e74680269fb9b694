package main

import (
	"encoding/json"
	"strings"
	"testing"

	"notifier/internal/status"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// eventuallyStatus runs "status -json" until the state is as expected, and returns the state.
func eventuallyStatus(t *testing.T, what string, env map[string]string, expected func(status.State) bool) (now status.State) {
	t.Helper()
	eventuallySays(t, what, env, []string{"status", "-json"}, func(out string) bool {
		now = status.State{}
		if err := json.Unmarshal([]byte(out), &now); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return expected(now)
	})
	return now
}

// TestStatus shows the worker's limits and counts. The counts outlive the worker.
func TestStatus(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"LIMIT_GLOBAL": "5/1h", "LIMIT_CATEGORY": "3/1h+100/2h"})
	if out, _ := runToEnd(t, env, exitDone, "status"); !strings.HasPrefix(out, "Not sending: no worker is running.\n") {
		t.Errorf("before any worker:\n%s", out)
	}
	p := startReady(t, env)
	publishes(t, env, "errors", "-n", "4", "disk full")
	publishes(t, env, "deploys", "-n", "4", "v1.2.3 is out")
	counted := func(now status.State) bool { return now.Limits[0].Sent1h == 5 && now.Limits[0].Dropped1h == 3 }
	env["LIMIT_GLOBAL"] = "100/1h" // the worker's counts
	now := eventuallyStatus(t, "all are settled and counted", env, func(now status.State) bool {
		return counted(now) && len(now.Replicas) == 1 && now.Replicas[0].State == "ready"
	})
	if len(now.Limits) != 5 || now.Limits[0].Limit != "5/1h" || now.Limits[0].Used != 5 || now.Limits[0].FreeAt.IsZero() || slack.Accepted() != 5 {
		t.Errorf("%+v; %d in Slack", now.Limits, slack.Accepted())
	}
	out, _ := runToEnd(t, env, exitDone, "status")
	if !strings.HasPrefix(out, "Sending. 5 of 5 global slots are used; everything is dropped for ") || strings.Contains(out, "\x1b") {
		t.Errorf("%q", out)
	}
	p.terminate(t)
	p.ends(t, exitDone)
	now = eventuallyStatus(t, "after the worker's end 5 are sent and 3 dropped", env, counted)
	if now.Limits[0].Limit != "100/1h" || now.Limits[0].Used != 5 {
		t.Errorf("%+v, expected the limit set here", now.Limits[0])
	}
}

// TestStatusWatchWritesOnlyJSON reads everything that "status -watch -json" writes while Redis is there, away
// and back.
func TestStatusWatchWritesOnlyJSON(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	_, _, env := services(t, map[string]string{"REDIS_URL": redis.URL()})
	text := start(t, env, "status", "-watch")
	kit.Eventually(t, "it looks again", func() bool {
		return strings.Count(text.out.String(), "Not sending: no worker is running.\n") >= 2
	})
	text.terminate(t)
	text.ends(t, exitDone)
	for _, arguments := range [][]string{nil, {"errors"}} {
		p := start(t, env, append([]string{"status", "-watch", "-json"}, arguments...)...)
		count := func() int { return strings.Count(p.out.String(), "\n") }
		kit.Eventually(t, "it writes", func() bool { return count() >= 2 })
		redis.Stop(t)
		kit.Eventually(t, "it names Redis", func() bool { return len(p.errOut.lines("notifier: REDIS_URL: ")) >= 2 })
		before := count()
		redis.Restart(t)
		kit.Eventually(t, "it writes again", func() bool { return count() >= before+2 })
		p.terminate(t)
		p.ends(t, exitDone)
		documents := json.NewDecoder(strings.NewReader(p.out.String()))
		n := 0
		for ; documents.More(); n++ {
			var document map[string]any
			if err := documents.Decode(&document); err != nil {
				t.Fatalf("%v: document %d: %v in:\n%s", arguments, n, err, p.out.String())
			}
			if document["limits"] == nil {
				t.Errorf("%v: document %d is no status: %v", arguments, n, document)
			}
		}
		if n != count() {
			t.Errorf("%v: %d documents in %d lines, expected one in each", arguments, n, count())
		}
	}
}
