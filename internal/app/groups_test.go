package app

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/status"
	"notifier/test/kit"
)

// A group's limit and a reserve reach the log, /metrics and the status.
func TestGroupsAndReservesOfAWorker(t *testing.T) {
	t.Parallel()
	var natsURL string
	s := servers(t, func(env map[string]string) { natsURL, env["SLACK_PACE"] = env["NATS_URL"], "off" })
	s.Store.Limits = kit.Rules("8/1h:1m", "5/1h:1m", "")
	s.Store.Limits.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("2/1h", "1/1h", "").Global}
	s.Store.Limits.Reserve = map[string]int{"payments": 2}
	store, err := OpenStore(s.Store, s.Deciding())
	kit.Check(t, err)
	logs := runWorker(t, s)
	js := kit.JetStream(t, natsURL)
	for i, category := range []string{"team-a.job1", "team-a.job2", "team-a.job1", "errors", "payments"} {
		kit.EventuallyNil(t, func() error { // the worker creates the stream
			_, err := js.Publish(t.Context(), "notify."+category, []byte("x"))
			return err
		})
		kit.Eventually(t, "it is settled", func() bool { return logs.FilterFieldKey("outcome").Len() == i+1 })
	}
	var lines []string
	for _, entry := range logs.FilterFieldKey("outcome").All() {
		f := entry.ContextMap()
		lines = append(lines, fmt.Sprint(f["category"], " ", f["group"], " ", f["outcome"], " ", f["reason"], " ", f["limit"]))
	}
	want := []string{
		"team-a.job1 team-a sent <nil> <nil>", "team-a.job2 team-a sent <nil> <nil>", "team-a.job1 team-a dropped group 2/1h",
		"errors <nil> sent <nil> <nil>", "payments <nil> sent <nil> <nil>",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	var now status.State
	kit.Eventually(t, "all are counted", func() bool {
		now = store.Status.Read(t.Context())
		return len(now.Limits) > 1 && now.Limits[0].Sent1h == 4 && now.Limits[0].Dropped1h == 1
	})
	g := now.Limits[1]
	if g.Scope != "group/team-a" || g.Limit != "2/1h" || g.Used != 2 || g.Sent1h != 2 || g.Dropped1h != 1 {
		t.Errorf("group %+v", g)
	}
	metrics := scraped(t, logs)
	for _, want := range []string{
		`notifier_events_total{category="team-a.job1",outcome="dropped",reason="group"} 1`, `notifier_limit_used{category="team-a",scope="group"} 2`,
	} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("no %s on /metrics", want)
		}
	}
}

// scraped returns the metrics of the worker with this log.
func scraped(t *testing.T, logs *observer.ObservedLogs) string {
	t.Helper()
	_, body := get(t, logs, "/metrics")
	return body
}

// get sends a request to the admin server of the worker with this log.
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
