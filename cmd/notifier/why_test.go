package main

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// TestWhyFindsEachEventWithAnID: an id counts within its category, and for a CloudEvent within its source. Redis
// knows the sent ones without NATS, too.
func TestWhyFindsEachEventWithAnID(t *testing.T) {
	t.Parallel()
	_, _, env := services(t, nil)
	p := startReady(t, env)
	publishes(t, env, "errors", "-id", "e-1", "disk full")
	publishes(t, env, "deploys", "-json", `{"id":"e-1","text":"v1 is out"}`)
	publishes(t, env, "deploys", "-json",
		`{"specversion":"1.0","id":"e-1","source":"https://me:hunter2@ci/","type":"t","data":"v2 is out"}`)
	publishes(t, env, "errors", "-json", `{"id":"e-1","text":"disk full"}`) // a duplicate
	kit.Eventually(t, "all are settled", func() bool { return len(p.out.lines(`"outcome":`)) == 4 })
	recorded := eventuallySays(t, "all are recorded", env, []string{"why", "e-1"}, func(out string) bool {
		return strings.Count(out, " e-1 ") == 4
	})
	away := with(env, map[string]string{"NATS_URL": "nats://127.0.0.1:1"})
	redisOnly, errOut := runToEnd(t, away, exitDone, "why", "e-1")
	if !strings.HasPrefix(errOut, "notifier: recorded outcomes are unknown: NATS_URL: ") {
		t.Error(errOut)
	}
	for name, out := range map[string]string{"NATS": recorded, "Redis alone": redisOnly} {
		if strings.Count(out, " sent ") != 3 || strings.Count(out, " https://ci/\n") != 1 || strings.Contains(out, "hunter2") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestSentEventsOfRedis are added unless they are recorded.
func TestSentEventsOfRedis(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	records := []outcome.Record{{Time: at, Category: "a", Source: "ci", Outcome: outcome.Sent}}
	traces := []ratelimit.Trace{
		{Category: "a", Sent: at},
		{Category: "a", Source: "ci", Sent: at},
		{Category: "a", Source: "other", Sent: at.Add(-time.Minute)},
		{Category: "b", InFlight: true, Admitted: at},
	}
	got := addSent(records, traces, "e")
	if len(got) != 2 || got[0].Source != "other" || got[0].EventID != "e" || got[1].Source != "ci" {
		t.Errorf("%+v", got)
	}
}
