package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

var failingInFlight = regexp.MustCompile(`^In flight in errors: admitted 20[^,]+, \d+ attempts?, last error http_503`)

// TestWhyFollowsAnEvent from its admission to Slack.
func TestWhyFollowsAnEvent(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, nil)
	slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	startReady(t, env)
	publishes(t, env, "errors", "-id", "e-1", "disk full")
	why := []string{"why", "e-1"}
	eventuallySays(t, "it is in flight", env, why, func(out string) bool {
		return failingInFlight.MatchString(out)
	})
	out, _ := runToEnd(t, env, exitDone, "why", "-json", "e-1")
	if !strings.HasPrefix(out, `{"event_id":"e-1","category":"errors","state":"in_flight","admitted":"`) {
		t.Error(out)
	}
	slack.Respond(nil)
	eventuallySays(t, "it was sent", env, why, func(out string) bool {
		return strings.Contains(out, " errors     sent      -        #alerts, ") && !strings.Contains(out, "In flight")
	})
}

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

// TestSecurityNATSWhy: an operator learns how many events are unread, as far as the permissions allow.
func TestSecurityNATSWhy(t *testing.T) {
	t.Parallel()
	const info = `"$JS.API.CONSUMER.INFO.NOTIFY.notifier" # how many events wait unread, for "why"`
	block := securityBlock(t, "nats")
	for name, test := range map[string]struct{ configuration, want string }{
		"operator": {block, "; 3 events unread in stream NOTIFY; "},
		"denied":   {strings.Replace(block, info, "", 1), "; the number of unread events is unknown: nats: permissions violation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as := startSecured(t, test.configuration)
			js := kit.JetStream(t, as("all"))
			createStreams(t, js)
			_, err := js.CreateOrUpdateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
				Durable: "notifier", FilterSubject: "notify.>", AckPolicy: jetstream.AckExplicitPolicy,
			})
			kit.Check(t, err)
			publishThree(t, js)
			env := map[string]string{"NATS_URL": as("operator"), "REDIS_URL": redistest.Start(t).URL()}
			_, errOut := runToEnd(t, env, exitFailed, "why", "e-1")
			if !strings.Contains(errOut, test.want) || strings.Contains(errOut, secret) {
				t.Errorf("%q, expected %q", errOut, test.want)
			}
		})
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
