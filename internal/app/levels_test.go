package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// TestLevelsOfAWorker follows groups, a reserve and limits in buckets from the script to the log, /metrics
// and the status.
func TestLevelsOfAWorker(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	var natsURL string
	s := servers(t, func(env *settings.Environment) { natsURL, env.SlackPace = env.NATSURL, "off" })
	s.Store.Limits = kit.Rules("8/1h:1m", "5/1h:1m", "")
	s.Store.Limits.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("3/1h", "1/1h", "").Global, "_other": kit.Rules("1/1h", "1/1h", "").Global}
	s.Store.Limits.Reserve = map[string]int{"payments": 2}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	store, err := OpenStore(s.Store, s.StatusConfig())
	kit.Check(t, err)
	go func() { ended <- Run(ctx, s, zap.New(core), nil) }()
	kit.Eventually(t, "the worker has started", func() bool { return logs.FilterMessage("admin server listens").Len() > 0 })
	connection, err := nats.Connect(natsURL)
	kit.Check(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	kit.Check(t, err)
	published := 0
	publish := func(category string, n int) {
		for range n {
			kit.EventuallyNil(t, func() error { // the worker creates the stream
				_, err := js.Publish(t.Context(), "notify."+category, []byte("x"))
				return err
			})
		}
		published += n
		kit.Eventually(t, "all are settled", func() bool { return logs.FilterFieldKey("outcome").Len() == published })
	}
	publish("team-a.job1", 2)
	publish("team-a.job2", 3)
	publish("_other.x", 2)
	publish("errors", 4)
	publish("payments", 2)
	if diff := cmp.Diff(map[string]int{
		"team-a.job1 team-a sent <nil> <nil> <nil>": 2, "team-a.job2 team-a sent <nil> <nil> <nil>": 1, "team-a.job2 team-a dropped group 3/1h <nil>": 2,
		"_other.x _other sent <nil> <nil> <nil>": 1, "_other.x _other dropped group 1/1h <nil>": 1,
		"errors <nil> sent <nil> <nil> <nil>": 2, "errors <nil> dropped global 8/1h:1m true": 2, "payments <nil> sent <nil> <nil> <nil>": 2,
	}, settledLines(t, logs)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	kit.Eventually(t, "all are counted", func() bool {
		now, err := store.Status.Read(ctx)
		return err == nil && now.Global.Sent == 8 && now.Global.Dropped == 5
	})
	now, err := store.Status.Read(ctx)
	kit.Check(t, err)
	groups := map[string]string{}
	for _, g := range now.Groups {
		groups[g.Group] = fmt.Sprintf("%s %d/%d, %d sent, %d dropped", g.Tiers[0].Limit, g.Tiers[0].Used, g.Tiers[0].Max, g.Sent, g.Dropped)
	}
	if diff := cmp.Diff(map[string]string{"team-a": "3/1h 3/3, 3 sent, 2 dropped", "__other": "1/1h 1/1, 1 sent, 1 dropped"}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]ratelimit.Reserve{{Category: "payments", Tier: s.Store.Limits.Global[0], Slots: 2, Used: 2}}, now.Reserves); diff != "" || !now.InBuckets {
		t.Errorf("in buckets: %t, reserves (-want +got):\n%s", now.InBuckets, diff)
	}
	metrics := scraped(t, logs)
	for _, want := range []string{
		`notifier_events_total{category="team-a.job2",outcome="dropped",reason="group"} 2`, `notifier_limit_used{category="team-a",scope="group"} 3`,
		`notifier_limit_max{category="__other",scope="group"} 1`, `notifier_limit_reserved{category="payments"} 2`, `notifier_limit_kept{category="payments"} 0`,
	} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("no %s on /metrics", want)
		}
	}
	cancel()
	kit.Check(t, <-ended)
}

// settledLines counts the lines of events by category, group, outcome, reason, limit, and whether the wait is
// a lower bound.
func settledLines(t *testing.T, logs *observer.ObservedLogs) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for _, entry := range logs.FilterFieldKey("outcome").All() {
		f := entry.ContextMap()
		if wait, there := f["retry_after_s"].(float64); there && (wait <= 0 || wait > 3660) {
			t.Errorf("%v: room in %v s, expected it within an hour and a minute", f["event_id"], wait)
		}
		lines[fmt.Sprint(f["category"], " ", f["group"], " ", f["outcome"], " ", f["reason"], " ", f["limit"], " ", f["retry_after_at_least"])]++
	}
	return lines
}

// scraped is what Prometheus would read of the worker with this log.
func scraped(t *testing.T, logs *observer.ObservedLogs) string {
	t.Helper()
	_, body := get(t, logs, "/metrics")
	return body
}

// get asks the admin server of the worker with this log.
func get(t *testing.T, logs *observer.ObservedLogs, path string) (status int, body string) {
	t.Helper()
	addr := logs.FilterMessage("admin server listens").All()[0].ContextMap()["addr"].(string)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + addr + path)
	kit.Check(t, err)
	content, err := io.ReadAll(response.Body)
	kit.Check(t, err)
	kit.Check(t, response.Body.Close())
	return response.StatusCode, string(content)
}
