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

	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/steering"
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
	s := servers(t, func(env *settings.Environment) {
		natsURL, env.LimitCategory, env.SlackPace = env.NATSURL, "1/1h", "off"
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
	var answer struct {
		Stream string
		Events []recent.Outcome
	}
	var body string
	events := func(query string) (status int) {
		status, body = get(t, logs, "/api/events"+query)
		answer.Events = nil // else what is not in the answer stays as it was in the one before
		kit.Check(t, json.Unmarshal([]byte(body), &answer))
		return status
	}
	kit.Eventually(t, "all are recorded", func() bool { return events("") == http.StatusOK && len(answer.Events) == 3 })
	if strings.Contains(body, "secret") {
		t.Errorf("a payload is in it: %s", body)
	}
	for i, got := range answer.Events {
		want := []recent.Outcome{
			{EventID: "e-3", Outcome: outcome.Dead, Reason: outcome.Malformed, StreamSeq: 3, LetterSeq: 1},
			{EventID: "e-2", Outcome: outcome.Dropped, Reason: outcome.Category, Limit: "1/1h", StreamSeq: 2},
			{EventID: "e-1", Outcome: outcome.Sent, Channel: "C0123", Attempts: 1, StreamSeq: 1},
		}[i]
		want.Category, want.Subject, want.Seq = "errors", "notify.errors", uint64(3-i)
		if got.Time.IsZero() || got.Worker == "" || (got.RetryAfter > 3500) != (i == 1) || (got.SlackTS != "") != (i == 2) || (got.Detail != "") != (i == 0) {
			t.Errorf("%+v", got)
		}
		got.Time, got.Worker, got.RetryAfter, got.SlackTS, got.Detail = time.Time{}, "", 0, "", ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if events("?category=errors&outcome=dead&n=7"); len(answer.Events) != 1 || answer.Events[0].EventID != "e-3" {
		t.Errorf("%s", body)
	}
	if events("?category=other"); len(answer.Events) != 0 || !strings.Contains(body, `"note":"nothing was recorded`) {
		t.Errorf("%s", body)
	}
	if status := events("?outcome=eaten"); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
	if !strings.Contains(scraped(t, logs), "\nnotifier_outcomes_left_out_total 0\n") {
		t.Error("no notifier_outcomes_left_out_total on /metrics")
	}
}

// Where outcomes would be read as events, a worker works and says why there are none.
func TestNoOutcomes(t *testing.T) {
	t.Parallel()
	logs := runWorker(t, servers(t, func(env *settings.Environment) { env.NATSSubject = "notify-events.>" }))
	if n := logs.FilterMessage("outcomes are not recorded").Len(); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
	status, body := get(t, logs, "/api/events")
	if want := "NATS_SUBJECT notify-events.> matches the subjects of outcomes"; status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
		t.Errorf("%d %s, expected %q", status, body, want)
	}
}

// TestThePageShowsEvents in the words of the command events.
func TestThePageShowsEvents(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	answer := eventsAnswer{Partial: true, Events: []recent.Outcome{
		{Time: at, EventID: "1", Category: "errors", Source: "ci", Outcome: outcome.Dropped, Reason: outcome.Category, Limit: "10/30m", RetryAfter: 90, LeftOut: 7, LeftOutOthers: 2},
		{Time: at, EventID: "2", Category: "errors", Outcome: outcome.Sent, Channel: "#alerts", Ambiguous: true},
	}}
	var rows []string
	for _, row := range answer.Table().Rows {
		text := row.Cells[0].Time.Format(time.TimeOnly)
		for _, cell := range row.Cells[1:] {
			text += " | " + cell.Text
		}
		rows = append(rows, text)
	}
	want := []string{
		"09:00:00 | errors | dropped category | limit 10/30m; room 2026-11-20T09:01:30Z; 7 more before | 1 | ci",
		"09:00:00 | errors | sent | channel #alerts; posted possibly twice (ambiguous) | 2 | ",
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	text := "The newest 2 events. Besides, 9 were not recorded, because there were too many. There may be others, which were not looked at."
	if got := answer.Text(); got != text {
		t.Errorf("%q", got)
	}
	if none := (eventsAnswer{Note: "nothing was recorded"}); none.Text() != "nothing was recorded." || none.Table() != nil {
		t.Errorf("%q", none.Text())
	}
}

// TestARecordHasWhatTheLineHas: limits with a reserve, limits below a cost, and mutes.
func TestARecordHasWhatTheLineHas(t *testing.T) {
	tier := kit.Rules("10/30m", "1/1h", "").Global[0]
	until := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	o := &outcomes{worker: "w", maxAge: time.Hour, channel: func(event.Event) string { return "#alerts" }}
	for i, test := range []struct {
		settled result.Result
		want    recent.Outcome
	}{
		{result.Result{Tier: tier, RetryAfter: time.Second, Reserved: 3, AtLeast: true}, recent.Outcome{Limit: "10/30m", RetryAfter: 1, AtLeast: true, Reserved: 3}},
		{result.Result{Tier: tier, RetryAfter: time.Second, Never: true}, recent.Outcome{Limit: "10/30m", AboveLimit: true}},
		{result.Result{Mute: &steering.Order{Target: "a.*", Until: until, By: "me", Reason: "it moves"}}, recent.Outcome{Mute: "a.*", MutedUntil: &until, MutedBy: "me", MuteReason: "it moves"}},
		{result.Result{Channel: "C0123", SlackTS: "1.2"}, recent.Outcome{Channel: "#alerts", SlackTS: "1.2"}},
		{result.Result{Reason: outcome.Expired}, recent.Outcome{Reason: outcome.Expired, Age: 5400, MaxAge: 3600}},
		{result.Result{NoLetter: true, LetterSeq: 7, Detail: "d", Ambiguous: true}, recent.Outcome{NoLetter: true, LetterSeq: 7, Detail: "d", Ambiguous: true}},
		{result.Result{Ambiguous: true, Found: true}, recent.Outcome{Ambiguous: true, Found: true}},
	} {
		test.settled.Event = event.Event{ID: "e", Category: "c", Subject: "notify.c", Source: "ci", Time: now.Add(-90 * time.Minute)}
		test.want.EventID, test.want.Category, test.want.Subject, test.want.Source, test.want.Worker, test.want.Time = "e", "c", "notify.c", "ci", "w", now
		if diff := cmp.Diff(test.want, o.record(&test.settled, now)); diff != "" {
			t.Errorf("%d (-want +got)\n%s", i, diff)
		}
	}
}
