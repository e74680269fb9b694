package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/status"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// eventuallyStatus runs "status -json" until it says what is expected, and returns that.
func eventuallyStatus(t *testing.T, what string, env map[string]string, expected func(status.Status) bool) (now status.Status) {
	t.Helper()
	eventuallySays(t, what, env, []string{"status", "-json"}, func(out string) bool {
		now = status.Status{}
		if err := json.Unmarshal([]byte(out), &now); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return expected(now)
	})
	return now
}

// TestStatus: what the status says is what was sent and dropped, also when the worker is gone.
func TestStatus(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"LIMIT_GLOBAL": "5/1h", "LIMIT_CATEGORY": "3/1h+100/2h"})
	if out, _ := runToEnd(t, env, exitDone, "status"); !strings.Contains(out, "All global slots are free.") || !strings.Contains(out, "Nothing is sent: no worker is running.") {
		t.Errorf("before any worker:\n%s", out)
	}
	p := startReady(t, env)
	publishes(t, env, "errors", "-n", "4", "disk full")
	publishes(t, env, "deploys", "-n", "4", "v1.2.3 is out")
	counted := func(now status.Status) bool { return now.Global.Sent == 5 && now.Global.Dropped == 3 }
	now := eventuallyStatus(t, "all are settled and counted", env, func(now status.Status) bool {
		return counted(now) && len(now.Replicas) == 1
	})
	used := map[string]int{}
	for _, scope := range now.Categories {
		used[scope.Category] = scope.Tiers[0].Used
		if len(scope.Tiers) != 2 || scope.Tiers[1].Limit != "100/2h" {
			t.Errorf("tiers %+v", scope.Tiers)
		}
	}
	if now.Global.Tiers[0].Used != 5 || used["errors"]+used["deploys"] != 5 || slack.Accepted() != 5 {
		t.Errorf("used %d overall, %v; %d in Slack; expected 5 of each", now.Global.Tiers[0].Used, used, slack.Accepted())
	}
	if now.Global.NextFree == nil || len(now.Slots) != 5 || now.Global.LastSent == nil {
		t.Errorf("next free %v, %d slots, last sent %v", now.Global.NextFree, len(now.Slots), now.Global.LastSent)
	}
	if !now.Replicas[0].Ready {
		t.Errorf("replica %+v, expected it to be ready", now.Replicas[0])
	}
	out, _ := runToEnd(t, env, exitDone, "status")
	for _, want := range []string{"5/5                 in 59m", "3/3                 in 59m", "2/3   global limit, in 59m", "Global slots are held by: ", "Replicas: 1, ready 1.", "sent 5, dropped "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("colours, but nobody looks on:\n%q", out)
	}

	slack.Always(devstack.Behaviour{Status: 503})
	env["LIMIT_GLOBAL"] = "100/1h" // what counts is what the worker has
	if out, _ := runToEnd(t, env, exitDone, "status"); !strings.Contains(out, "5/5 ") || strings.Contains(out, "set here") {
		t.Errorf("with another limit here:\n%s", out)
	}
	p.terminate(t)
	p.ends(t, exitDone)
	if out, _ := runToEnd(t, env, exitDone, "status"); !strings.Contains(out, "5/100") || !strings.Contains(out, "No replica runs: the limits are those that are set here.") {
		t.Errorf("without a worker, and with another limit here:\n%s", out)
	}
	eventuallyStatus(t, "after the worker's end 5 are sent and 3 dropped", env, counted)
}

// TestAFullRedisIsNamed: with a worker whose reports it does not store, and without one.
func TestAFullRedisIsNamed(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	_, _, env := services(t, map[string]string{"REDIS_URL": redis.URL()})
	p := startReady(t, env)
	kit.Check(t, redis.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	const first = "Nothing is sent: Redis is full (maxmemory).\n"
	says := func() {
		for _, arguments := range [][]string{{"status"}, {"status", "errors"}} {
			if out, _ := runToEnd(t, env, exitDone, arguments...); !strings.HasPrefix(out, first) || strings.Contains(out, ", ready") {
				t.Errorf("%v: expected %q first, and no replica that is ready:\n%s", arguments, first, out)
			}
		}
	}
	says()
	p.terminate(t)
	p.ends(t, exitDone)
	says()
}

func TestStatusWatches(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, nil)
	for shown, arguments := range map[string][]string{
		"All global slots are free.": nil,
		"category         errors\n":  {"errors"},
		`"category":"errors",`:       {"errors", "-json"},
	} {
		p := start(t, env, append([]string{"status", "-watch", "-every", "100ms"}, arguments...)...)
		kit.Eventually(t, "it looks again", func() bool { return strings.Count(p.out.String(), shown) >= 3 })
		p.terminate(t)
		p.ends(t, exitDone)
	}
}

func TestStatusOfARedisThatIsAway(t *testing.T) {
	t.Parallel()
	env := map[string]string{"REDIS_URL": "redis://:secret@127.0.0.1:1", "NATS_URL": "nats://127.0.0.1:1"}
	for _, arguments := range [][]string{{"status"}, {"status", "-json"}, {"why", "e"}} {
		if out, errOut := runToEnd(t, env, exitFailed, arguments...); out != "" || !strings.Contains(errOut, "redis") || strings.Contains(errOut, "secret") {
			t.Errorf("%v: %q %q, expected an error that names redis", arguments, out, errOut)
		}
	}
}

// TestWhy follows an event from "never seen" to "sent", and another one to "dropped".
func TestWhy(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, map[string]string{"LIMIT_CATEGORY": "1/1h"})
	if out, _ := runToEnd(t, env, exitDone, "why", "e1"); !strings.Contains(out, "e1 is unknown") {
		t.Errorf("before: %q", out)
	}
	if out, _ := runToEnd(t, env, exitDone, "why", "a\u202eb\u009b"); !strings.Contains(out, "a?b? is unknown") {
		t.Errorf("%q, expected nothing that a terminal obeys", out)
	}
	slack.Always(devstack.Behaviour{Status: 503})
	startReady(t, env)
	publishes(t, env, "errors", "-id", "e1", "disk full")
	e1 := []string{"why", "e1"}
	eventuallySays(t, "it is held", env, e1, func(out string) bool {
		held := strings.HasPrefix(out, "e1 of category errors is admitted and held.\n")
		return held && strings.Contains(out, ", failed with http_503") && strings.Contains(out, "\n  because   #alerts: unavailable: http_503\n")
	})
	slack.Always(devstack.Behaviour{})
	eventuallySays(t, "it was sent", env, e1, func(out string) bool {
		return strings.HasPrefix(out, "e1 of category errors was sent.\n  sent      ")
	})
	publishes(t, env, "errors", "-id", "e2", "disk full")
	out, _ := runToEnd(t, env, exitDone, "why", "-json", "e1")
	var line whyAnswer
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.State != "sent" || line.Category != "errors" || line.Sent.IsZero() || !line.Admitted.IsZero() {
		t.Errorf("%v: %s", err, out)
	}
	eventuallySays(t, "it is recorded that e2 was dropped", env, []string{"why", "-json", "e2"}, func(out string) bool {
		return strings.Contains(out, `"state":"dropped"`) && strings.Contains(out, `"limit":"1/1h","retry_after_s":`) && strings.Contains(out, `"room_at":"`)
	})
}

// TestWhyFindsAllEventsWithAnID: an id counts within its category, and a CloudEvent's together with its
// source.
func TestWhyFindsAllEventsWithAnID(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, nil)
	startReady(t, env)
	publishes(t, env, "errors", "-id", "e1", "disk full")
	publishes(t, env, "deploys", "-json", `{"id":"e1","text":"v1 is out"}`)
	publishes(t, env, "deploys", "-json", `{"specversion":"1.0","id":"e1","source":"/ci","type":"t","data":"v2 is out"}`)
	publishes(t, env, "errors", "-json", `{"id":"e1","text":"disk full"}`) // a duplicate
	out := eventuallySays(t, "three were sent", env, []string{"why", "e1"}, func(out string) bool {
		return strings.Count(out, "was sent.\n") == 3
	})
	eventuallyStatus(t, "three are counted as sent and one as dropped", env, func(now status.Status) bool {
		return now.Global.Sent == 3 && now.Global.Dropped == 1
	})
	for _, part := range []string{"e1 of category errors was sent.\n  sent      ", "e1 of category deploys was sent.\n  sent      ", "e1 of category deploys was sent.\n  source    /ci\n  sent      "} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	for category, want := range map[string][]string{"errors": {""}, "deploys": {"", "/ci"}} {
		out, _ := runToEnd(t, env, exitDone, "why", "-json", "-category", category, "e1")
		var sources []string
		for text := range strings.Lines(out) {
			var line whyAnswer
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.EventID != "e1" || line.State != "sent" || line.Category != category {
				t.Errorf("%v: %s", err, text)
			}
			sources = append(sources, line.Source)
		}
		slices.Sort(sources)
		if !slices.Equal(sources, want) {
			t.Errorf("sources of %s: %q, expected %q", category, sources, want)
		}
	}
	if out, _ := runToEnd(t, env, exitDone, "why", "-category", "other", "e1"); !strings.HasPrefix(out, "e1 is unknown in category other: ") {
		t.Errorf("of a category without it: %s", out)
	}
}
