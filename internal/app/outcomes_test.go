package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/outcome"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// startWorker runs a worker until stop is called, and gives its log.
func startWorker(t *testing.T, s settings.Settings) (logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, zap.New(core), nil) }()
	kit.Eventually(t, "the worker has started", func() bool {
		return logs.FilterMessage("admin server listens").Len() > 0
	})
	return logs, func() { cancel(); kit.Check(t, <-ended) }
}

// runWorker runs a worker until the test ends, and gives its log.
func runWorker(t *testing.T, s settings.Settings) *observer.ObservedLogs {
	t.Helper()
	logs, stop := startWorker(t, s)
	t.Cleanup(stop)
	return logs
}

// TestOutcomesOfAWorker follows a sent, a dropped and a dead event to /api/events.
func TestOutcomesOfAWorker(t *testing.T) {
	t.Parallel()
	var natsURL string
	s := servers(t, func(env map[string]string) {
		natsURL, env["LIMIT_CATEGORY"], env["SLACK_PACE"] = env["NATS_URL"], "1/1h", "off"
	})
	logs := runWorker(t, s)
	js := kit.JetStream(t, natsURL)
	for i, payload := range []string{"a secret text", "a secret text", `{"text":7}`} {
		message := jetstream.WithMsgID(fmt.Sprint("e-", i+1))
		kit.EventuallyNil(t, func() error { // the worker creates the stream
			_, err := js.Publish(t.Context(), "notify.errors", []byte(payload), message)
			return err
		})
		kit.Eventually(t, "it is settled", func() bool { return logs.FilterFieldKey("outcome").Len() == i+1 })
	}
	var answer struct{ Events []outcome.Record }
	var body string
	events := func(query string) (status int) {
		status, body = get(t, logs, "/api/events"+query)
		answer.Events = nil // absent fields would keep their values
		kit.Check(t, json.Unmarshal([]byte(body), &answer))
		return status
	}
	kit.Eventually(t, "all are recorded", func() bool { return events("") == http.StatusOK && len(answer.Events) == 3 })
	if strings.Contains(body, "secret") {
		t.Errorf("a payload is in it: %s", body)
	}
	for i, got := range answer.Events {
		want := []outcome.Record{
			{EventID: "e-1", Outcome: outcome.Sent, Channel: "C0123", Attempts: 1, StreamSeq: 1},
			{EventID: "e-2", Outcome: outcome.Dropped, Reason: outcome.Category, Limit: "1/1h", StreamSeq: 2},
			{EventID: "e-3", Outcome: outcome.Dead, Reason: outcome.Malformed, StreamSeq: 3, LetterSeq: 1},
		}[i]
		want.Category, want.Subject, want.Seq = "errors", "notify.errors", uint64(i+1)
		sent := i == 0
		if got.Time.IsZero() || (got.Latency > 0) != sent || (got.SlackTS != "") != sent ||
			(got.RetryAfter > 3500) != (i == 1) || (got.Detail != "") != (i == 2) {
			t.Errorf("%+v", got)
		}
		got.Time, got.Latency, got.RetryAfter, got.SlackTS, got.Detail = time.Time{}, 0, 0, "", ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if events("?category=errors&outcome=dead&n=7"); len(answer.Events) != 1 || answer.Events[0].EventID != "e-3" {
		t.Errorf("%s", body)
	}
	if events("?category=errors&n=2"); len(answer.Events) != 2 || answer.Events[1].EventID != "e-3" ||
		!strings.Contains(body, `"note":"older events are not shown"`) {
		t.Errorf("%s", body)
	}
	if events("?category=other"); !strings.Contains(body, `"events":[]`) || strings.Contains(body, "note") {
		t.Errorf("%s", body)
	}
	if status := events("?outcome=eaten"); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
}

// A worker runs without recording if it would read records as events, and logs the reason.
func TestNoOutcomes(t *testing.T) {
	t.Parallel()
	logs := runWorker(t, servers(t, func(env map[string]string) { env["NATS_SUBJECT"] = "notify-events.>" }))
	if n := logs.FilterMessage("outcomes are not recorded").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
	status, body := get(t, logs, "/api/events")
	if want := "NATS_SUBJECT notify-events.> matches the subjects of outcomes"; status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
		t.Errorf("%d %s, expected %q", status, body, want)
	}
}
