package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestWhyWhileRedisIsFull: an event that was admitted before, and one that no worker can admit.
func TestWhyWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	_, slack, env := services(t, map[string]string{"REDIS_URL": redis.URL()})
	slack.Always(devstack.Behaviour{Status: 503})
	startReady(t, env)
	publishes(t, env, "errors", "-id", "held-1", "disk full")
	eventuallySays(t, "it is admitted", env, []string{"why", "held-1"}, func(out string) bool {
		return strings.HasPrefix(out, "held-1 of category errors is admitted and held.\n")
	})
	kit.Check(t, redis.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	publishes(t, env, "errors", "-id", "held-2", "disk full")
	for id, begin := range map[string]string{"held-1": "held-1 of category errors is admitted and held.\n", "held-2": "held-2 may be "} {
		eventuallySays(t, id+" waits for Redis", env, []string{"why", id}, func(out string) bool {
			return strings.HasPrefix(out, begin) && strings.Contains(out, "\n  because   Redis is full (maxmemory)\n")
		})
	}
}

// Redis knows a CloudEvent's source as it came: an id is unique within it. It is shown, and compared with that
// of an outcome, without its secrets.
func TestWhyShowsNoSecretOfASource(t *testing.T) {
	t.Parallel()
	traces := []ratelimit.Trace{{Category: "errors", Source: "https://me:hunter2@ci.example/1?token=hunter2"}}
	outcomes := []recent.Outcome{{EventID: "a", Category: "errors", Outcome: outcome.Sent, Source: "https://ci.example/1"}}
	answers := newAnswers("a", traces, outcomes)
	if len(answers) != 1 || answers[0].Source != "https://ci.example/1" || answers[0].Recorded == nil {
		t.Errorf("%+v, expected one answer, with the source https://ci.example/1 and what was recorded", answers)
	}
}

// TestWhyAfterAReplay: an event that is dead may wait unread once it is replayed, is held while Slack fails
// on it, with what Slack has answered, and then it was dead before.
func TestWhyAfterAReplay(t *testing.T) {
	t.Parallel()
	_, slack, env := services(t, nil)
	slack.Always(devstack.Behaviour{Code: "invalid_blocks"})
	worker := start(t, env)
	readyURL(t, &worker.out)
	publishes(t, env, "errors", "-id", "e-1", "disk full")
	why := []string{"why", "e-1"}
	out := eventuallySays(t, "it is dead", env, why, func(out string) bool {
		return strings.HasPrefix(out, "e-1 of category errors is dead: slack_rejected.\n")
	})
	if strings.Contains(out, "replayed") {
		t.Errorf("%q, expected nothing of a replay", out)
	}
	worker.terminate(t)
	worker.ends(t, exitDone)
	runToEnd(t, env, exitDone, "dead", "replay")
	out, _ = runToEnd(t, env, exitDone, why...)
	if !strings.HasPrefix(out, "e-1 of category errors is dead: slack_rejected.\n") ||
		!strings.Contains(out, "\n  replayed  if it was replayed, it may be the one event that waits unread in stream NOTIFY, since ") {
		t.Errorf("%q, expected that it may wait unread", out)
	}
	slack.Always(devstack.Behaviour{Status: 503})
	start(t, env)
	tried := regexp.MustCompile(`(?m)^  tried     \d+ times?, last at \S+, failed with http_503(; again at \S+ or later)?$`)
	out = eventuallySays(t, "it is held", env, why, func(out string) bool {
		return strings.HasPrefix(out, "e-1 of category errors is admitted and held.\n") && tried.MatchString(out)
	})
	if !strings.Contains(out, "\ne-1 of category errors was dead before: slack_rejected.\n") {
		t.Errorf("%q, expected that it was dead before", out)
	}
}

// TestSecurityNATSWhy: an operator learns how many events wait unread, and who may read events since when.
func TestSecurityNATSWhy(t *testing.T) {
	t.Parallel()
	const info = `"$JS.API.CONSUMER.INFO.NOTIFY.notifier" # how many events wait unread, for "why"`
	block := securityBlock(t, "nats")
	for name, test := range map[string]struct{ configuration, user, out, errOut string }{
		"operator": {block, "operator", "e-1 may be one of the 3 events that wait unread in stream NOTIFY.\n", ""},
		"all":      {block, "all", "e-1 may be one of the 3 events that wait unread in stream NOTIFY, the oldest since 20", ""},
		"denied": {
			strings.Replace(block, info, "", 1), "operator", "e-1 is unknown: ",
			`whether it waits unread in the stream is not known: nats: permissions violation: Permissions Violation for Publish to ` +
				`"$JS.API.CONSUMER.INFO.NOTIFY.notifier"`,
		},
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
			env := map[string]string{"NATS_URL": as(test.user), "REDIS_URL": redistest.Start(t).URL()}
			if test.user == "all" {
				down := with(env, map[string]string{"REDIS_URL": "redis://127.0.0.1:1"})
				out, _ := runToEnd(t, down, exitDone, "why", "e-1")
				if !strings.HasPrefix(out, test.out) || !strings.Contains(out, "\n  because   Redis is unavailable\n") {
					t.Errorf("without Redis: %q", out)
				}
			}
			out, errOut := runToEnd(t, env, exitDone, "why", "e-1")
			if !strings.HasPrefix(out, test.out) || !strings.Contains(errOut, test.errOut) || (errOut == "") != (test.errOut == "") {
				t.Errorf("%q %q, expected %q %q", out, errOut, test.out, test.errOut)
			}
		})
	}
}
