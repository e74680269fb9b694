package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/term"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// reality is a Redis with limits and orders, and with reports that a test chooses.
type reality struct {
	stored
	steering *steering.Store
	limiter  *ratelimit.Limiter
	source   Source
}

func eachReal(t *testing.T, test func(t *testing.T, r *reality)) {
	t.Helper()
	run := func(t *testing.T, client redis.UniversalClient) {
		rules := kit.Rules("6/1h", "3/1h", "")
		rules.Reserve = map[string]int{"payments": 2}
		store, err := steering.NewStore(client, "notifier")
		kit.Check(t, err)
		r := &reality{steering: store, stored: stored{Report: report.Report{Replicas: []report.Replica{replica("a", nil)}}}}
		r.limiter, err = ratelimit.New(client, "notifier", rules, time.Hour)
		kit.Check(t, err)
		subject, err := event.ParsePattern("notify.>")
		kit.Check(t, err)
		own := config.Deciding{
			Rules: rules, Dedupe: time.Hour, Channel: "#alerts", Subject: subject,
			Routes: pattern.MustTable(map[string]string{"deploys": "#deploys"}),
		}
		r.Replicas[0].Snapshot.Settings.Text = own.Text()
		r.source = Source{
			Reports: reports{&r.stored}, Steering: store,
			LimiterFor: func(rules ratelimit.Rules, dedupe time.Duration, temporary ratelimit.Temporary) (Limiter, error) {
				limiter, err := ratelimit.New(client, "notifier", rules, dedupe)
				if err == nil {
					limiter.SetTemporary(temporary)
				}
				return limiter, err
			},
		}
		now, err := store.Read(t.Context())
		kit.Check(t, err)
		r.Now = now.Now
		test(t, r)
	}
	redistest.EachStore(t,
		func(t *testing.T, s *redistest.Server) { run(t, s.Client(t)) },
		func(t *testing.T, s *miniredis.Miniredis) {
			s.SetTime(now)
			run(t, kit.OpenRedis(t, "redis://"+s.Addr()))
		})
}

func (r *reality) admit(t *testing.T, category string, n int) {
	t.Helper()
	for i := range n {
		request := ratelimit.Request{ID: fmt.Sprint(category, i), Category: category, Cost: 1, Delivery: "1"}
		decisions, err := r.limiter.Admit(t.Context(), []ratelimit.Request{request})
		kit.Check(t, err)
		if decisions[0].Verdict != ratelimit.Admitted {
			t.Fatalf("%s %d: %+v", category, i, decisions[0])
		}
	}
}

func (r *reality) explain(t *testing.T, category string) Explanation {
	t.Helper()
	e, err := r.source.Explain(t.Context(), category)
	kit.Check(t, err)
	return e
}

// TestExplain follows one category from empty to full and muted, and the global limit down to its reserve. A
// temporary limit's end is the lower bound of the wait.
func TestExplain(t *testing.T) {
	eachReal(t, func(t *testing.T, r *reality) {
		says := func(category, want string) {
			t.Helper()
			// On a server some time passes; the test compares minutes.
			if got := r.explain(t, category).Sentence(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, expected %q", category, got, want)
			}
		}
		says("errors", "Would be sent to #alerts.")
		r.Replicas[0].Snapshot.Channels = []snapshot.Channel{{Name: "#alerts", Refused: "is_archived"}}
		says("errors", "Would be sent to #alerts, but is not sent now: Slack refuses the channel (is_archived)")
		says("deploys", "Would be sent to #deploys.")
		r.Replicas[0].Snapshot.Channels = nil
		r.admit(t, "errors", 3)
		full := r.explain(t, "errors")
		if full.Sends || full.Reason != outcome.Category || full.Limit != "3/1h" || full.RetryAfterS < 3500 || full.AtLeast ||
			len(full.Limits) != 2 || full.Limits[0].Used != 3 || full.Limits[1].FreeAt.IsZero() {
			t.Errorf("%+v", full)
		}
		if got := full.Sentence(); !strings.HasPrefix(got, "Would be dropped: category/errors 3/1h is full, room in ") {
			t.Errorf("%q", got)
		}
		order, err := steering.NewLimit("category/errors", "1/2h", "alice", "")
		kit.Check(t, err)
		_, _, err = r.steering.Set(t.Context(), order, 10*time.Minute)
		kit.Check(t, err)
		e := r.explain(t, "errors")
		if e.Sends || e.Limit != "1/2h" || !e.AtLeast || e.RetryAfterS > 600 || !e.Limits[1].AtLeast ||
			e.Limits[1].FreeAt.Sub(r.Now) > 11*time.Minute {
			t.Errorf("%+v", e)
		}
		r.admit(t, "x", 1)
		says("deploys", "Would be dropped: global 6/1h has room only for categories with a reserve (2 slots), room in at least ")
		says("payments", "Would be sent to #alerts.")

		for pattern, length := range map[string]time.Duration{">": time.Hour, "payments": time.Minute, "*": time.Second, "errors": 2 * time.Hour} {
			order, err = steering.NewMute(pattern, "alice", "drill")
			kit.Check(t, err)
			_, _, err = r.steering.Set(t.Context(), order, length)
			kit.Check(t, err)
		}
		says("payments", "Would be dropped: muted by alice for ")
		if e := r.explain(t, "payments"); e.Sends || e.Reason != outcome.Muted || e.Mute == nil || e.Mute.Name != ">" || e.Limit != "" {
			t.Errorf("%+v", e)
		}
	})
}

func TestExplanationAsJSONAndText(t *testing.T) {
	s := &stored{Report: report.Report{Now: now, Replicas: []report.Replica{replica("a", shows("100/30m", 0))}}}
	for i := range 12 {
		s.Counts = append(s.Counts, report.Count{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Global, Source: fmt.Sprint("s", i), N: int64(i)})
	}
	s.Counts = append(s.Counts,
		report.Count{Category: "errors", Outcome: outcome.Sent, Source: "s11", N: 2},
		report.Count{Category: "errors", Outcome: outcome.Dead, Reason: outcome.Malformed, N: 100},
		report.Count{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Reply, N: 9},
		report.Count{Category: "errors", Outcome: outcome.Sent, Source: outcome.OtherCategories, N: 1},
		report.Count{Category: "deploys", Outcome: outcome.Sent, Source: "s11", N: 50},
	)
	e, err := s.source().Explain(t.Context(), "errors")
	kit.Check(t, err)
	text, err := json.Marshal(e)
	kit.Check(t, err)
	kit.WantJSON(t, text, `{
	"category": "errors", "sends": true, "reason": "", "limit": "", "retry_after_s": 0, "at_least": false,
	"limits": [
		{"scope": "global", "limit": "100/30m", "used": 23, "max": 100, "at_least": false, "sent_1h": 53, "dropped_1h": 66},
		{"scope": "category/errors", "limit": "10/30m", "used": 0, "max": 10, "at_least": false, "sent_1h": 3, "dropped_1h": 66}],
	"channel": "#alerts", "mute": null,
	"sources": [
		{"source": "s11", "sent": 2, "dropped": 11, "total": 13}, {"source": "s10", "sent": 0, "dropped": 10, "total": 10},
		{"source": "s9", "sent": 0, "dropped": 9, "total": 9}, {"source": "s8", "sent": 0, "dropped": 8, "total": 8},
		{"source": "s7", "sent": 0, "dropped": 7, "total": 7}, {"source": "s6", "sent": 0, "dropped": 6, "total": 6},
		{"source": "s5", "sent": 0, "dropped": 5, "total": 5}, {"source": "s4", "sent": 0, "dropped": 4, "total": 4},
		{"source": "_other", "sent": 1, "dropped": 6, "total": 107}]}`)
	e.Sources = e.Sources[:2]
	e.Sources[1].Source = ""
	var out strings.Builder
	kit.Check(t, e.WriteText(&out, term.Screen{}))
	want := `Would be sent to #alerts.

LIMIT                    USED     FREE IN   SENT 1H   DROPPED 1H
global 100/30m           23/100   -         53        66
category/errors 10/30m   0/10     -         3         66

SOURCE   SENT 1H   DROPPED 1H   TOTAL 1H
s11      2         11           13
-        0         10           10
As publishers name them, as of 2026-11-20T09:10:38Z.
`
	if difference := cmp.Diff(want, out.String()); difference != "" {
		t.Errorf("text (-want +got):\n%s", difference)
	}
}

func TestCategoriesThatNoEventHas(t *testing.T) {
	s := &stored{Report: report.Report{Now: now}}
	source := s.source()
	var err error
	source.Own.Subject, err = event.ParsePattern("notify.*")
	kit.Check(t, err)
	for category, want := range map[string]string{
		"":              "is empty",
		"errors.>":      "is a pattern",
		"notify.errors": `did you mean "errors"?`,
		"errors.db":     "never occurs",
	} {
		_, err := source.Explain(t.Context(), category)
		wrong := (*CategoryError)(nil)
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", category, err, want)
		}
	}
	s.err = errors.New("i/o timeout")
	if _, err := source.Explain(t.Context(), "errors"); !errors.Is(err, s.err) {
		t.Errorf("%v, expected Redis's error", err)
	}
}
