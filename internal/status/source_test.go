package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/term"
	"notifier/test/kit"
)

// stored is the content of Redis: reports, orders and limits in one.
type stored struct {
	report.Report
	err, pausesErr error
	refuses        error
	orders         steering.State
	recent         []string
	usages         func(categories []string) []ratelimit.Usage
	peeked         []string

	rules     ratelimit.Rules // of the last limiter
	temporary ratelimit.Temporary
}

func (s *stored) Read(context.Context) (report.Report, error) { return s.Report, s.err }
func (s *stored) RefusesWrites(context.Context) error         { return s.refuses }

func (s *stored) Recent(_ context.Context, max int) ([]string, int, error) {
	return s.recent[:min(max, len(s.recent))], len(s.recent), nil
}

func (s *stored) Peek(_ context.Context, categories ...string) ([]ratelimit.Usage, error) {
	s.peeked = categories
	usages := []ratelimit.Usage{{Tier: ratelimit.Tier{Count: 100, Window: 30 * time.Minute}, Used: 23}}
	for _, category := range categories {
		usages = append(usages, ratelimit.Usage{Category: category, Tier: ratelimit.Tier{Count: 10, Window: 30 * time.Minute}})
	}
	if s.usages != nil {
		usages = append(usages[:1], s.usages(categories)...)
	}
	return usages, nil
}

func (s *stored) Pauses(context.Context) ([]ratelimit.Pause, error) { return nil, s.pausesErr }

func (s *stored) DryRun(context.Context, string, int) (ratelimit.Decision, error) {
	return ratelimit.Decision{Verdict: ratelimit.Admitted}, nil
}

type reports struct{ *stored }

func (r reports) Replicas(context.Context) ([]report.Replica, error) { return r.Report.Replicas, r.err }

type orders steering.State

func (o orders) Read(context.Context) (steering.State, error) { return steering.State(o), nil }

// source reads it.
func (s *stored) source() Source {
	return Source{
		Reports: reports{s}, Steering: orders(s.orders), Own: config.Deciding{Rules: kit.Rules("77/1h", "7/1h", "")},
		LimiterFor: func(rules ratelimit.Rules, _ time.Duration, temporary ratelimit.Temporary) (Limiter, error) {
			s.rules, s.temporary = rules, temporary
			return s, nil
		},
	}
}

func shows(limit string, started time.Duration) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		s.Started = ago(started)
		s.Settings.Text = map[string]string{
			"LIMIT_GLOBAL": limit, "LIMIT_CATEGORY": "10/30m", "DEDUPE_WINDOW": "1h", "NATS_SUBJECT": "notify.>",
			"SLACK_CHANNEL": "#alerts",
		}
	}
}

// TestJSONIsTheContract has each field of CONTRACT 2 once.
func TestJSONIsTheContract(t *testing.T) {
	mute, err := steering.NewMute("noise.>", "alice", "being moved")
	kit.Check(t, err)
	mute.Since, mute.Until = ago(time.Minute), now.Add(time.Hour)
	limit, err := steering.NewLimit("category/errors", "20/30m", "bob", "")
	kit.Check(t, err)
	limit.Since, limit.Until = ago(time.Second), now.Add(10*time.Minute)
	s := &stored{
		orders: steering.State{Now: now, Orders: []steering.Order{mute, limit}},
		recent: []string{"errors"},
		usages: func([]string) []ratelimit.Usage {
			return []ratelimit.Usage{{
				Category: "errors", Tier: ratelimit.Tier{Count: 20, Window: 30 * time.Minute}, Used: 20, FreeIn: 29 * time.Minute,
			}, {Category: "_other", Tier: ratelimit.Tier{Count: 10, Window: 30 * time.Minute}}}
		},
		Report: report.Report{Now: now, Replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
			shows("100/30m", time.Hour)(s)
			s.Version, s.Held = "v0.3.0", 3
			s.Waits = []snapshot.Wait{wait("redis_clock", "", "set back by 3s")}
		})}, Counts: []report.Count{
			{Category: "errors", Outcome: outcome.Sent, N: 10},
			{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Category, N: 380},
			{Category: "errors", Outcome: outcome.Dropped, Reason: outcome.Reply, N: 9},
			{Category: "errors", Outcome: outcome.Dead, Reason: outcome.Malformed, N: 1},
			{Category: outcome.OtherCategories, Outcome: outcome.Sent, N: 5},
			{Category: outcome.CategoryName("_other"), Outcome: outcome.Sent, N: 2},
		}},
	}
	got := s.source().Read(t.Context())
	text, err := json.Marshal(got)
	kit.Check(t, err)
	kit.WantJSON(t, text, `{
	"time": "2026-11-20T09:10:38Z", "state": "fail",
	"summary": "Sending. No slot becomes free: the clock of Redis was set back. 23 of 100 global slots are used; errors is full for at least 10m.",
	"conditions": [
		{"type": "clock", "state": "fail", "since": "2026-11-20T09:06:38Z", "message": "set back by 3s"},
		{"type": "dead", "state": "warn", "message": "1 dead event in the last hour: 1 malformed"}],
	"limits": [
		{"scope": "global", "limit": "100/30m", "used": 23, "max": 100, "at_least": false, "sent_1h": 17, "dropped_1h": 380},
		{"scope": "category/errors", "limit": "20/30m", "used": 20, "max": 20, "free_at": "2026-11-20T09:20:38Z", "at_least": true,
			"sent_1h": 10, "dropped_1h": 380},
		{"scope": "category/_other", "limit": "10/30m", "used": 0, "max": 10, "at_least": false, "sent_1h": 2, "dropped_1h": 0}],
	"replicas": [{"id": "a", "state": "ready", "held": 3, "version": "v0.3.0", "settings": "6f1c2d3e", "seen": "2026-11-20T09:10:37Z"}],
	"overrides": [
		{"kind": "limit", "name": "category/errors", "limit": "20/30m", "until": "2026-11-20T09:20:38Z", "by": "bob"},
		{"kind": "mute", "name": "noise.>", "until": "2026-11-20T10:10:38Z", "by": "alice", "reason": "being moved"}],
	"omitted": {"events": 5}}`)
	if len(s.temporary.Categories) != 1 || fmt.Sprint(s.peeked) != "[errors _other]" {
		t.Errorf("looked at %s with %+v", s.peeked, s.temporary)
	}

	var out strings.Builder
	kit.Check(t, got.WriteText(&out, term.Screen{}))
	want := `Sending. No slot becomes free: the clock of Redis was set back. 23 of 100 global slots are used; errors is full for at least 10m.

CONDITION   STATE   SINCE   MESSAGE
clock       fail    4m      set back by 3s
dead        warn    -       1 dead event in the last hour: 1 malformed

LIMIT                    USED     FREE IN        SENT 1H   DROPPED 1H
global 100/30m           23/100   -              17        380
category/errors 20/30m   20/20    at least 10m   10        380
category/_other 10/30m   0/10     -              2         0
Counts cover the last hour, as of 2026-11-20T09:10:38Z, and lag by up to two seconds. 5 events of further categories count only in global.

REPLICA   STATE   HELD   SETTINGS   VERSION
a         ready   3      6f1c2d3e   v0.3.0

OVERRIDE                       UNTIL                  BY      REASON
limit category/errors 20/30m   2026-11-20T09:20:38Z   bob     -
mute noise.>                   2026-11-20T10:10:38Z   alice   being moved
`
	if difference := cmp.Diff(want, out.String()); difference != "" {
		t.Errorf("text (-want +got):\n%s", difference)
	}
}

// TestWhoseLimits: the newest ready replica's limits are shown.
func TestWhoseLimits(t *testing.T) {
	unready := func(limit string) func(*snapshot.Snapshot) {
		return func(s *snapshot.Snapshot) { shows(limit, 0)(s); s.Ready = false }
	}
	for name, test := range map[string]struct {
		replicas []report.Replica
		want     string
		warns    bool
	}{
		"none runs":        {nil, "77/1h", false},
		"the newest":       {[]report.Replica{replica("a", shows("1/1h", time.Hour)), replica("b", shows("2/1h", time.Minute))}, "2/1h", false},
		"ready ones first": {[]report.Replica{replica("a", shows("1/1h", time.Hour)), replica("b", unready("2/1h"))}, "1/1h", false},
		"not silent ones":  {[]report.Replica{replica("a", unready("1/1h")), silentFor(replica("b", shows("2/1h", 0)), time.Minute)}, "1/1h", false},
		"all are silent":   {[]report.Replica{silentFor(replica("b", shows("2/1h", 0)), time.Minute)}, "2/1h", false},
		"no text":          {[]report.Replica{replica("a", nil)}, "77/1h", true},
		"a newer grammar":  {[]report.Replica{replica("a", shows("1/1h~new", 0))}, "77/1h", true},
	} {
		s := &stored{Report: report.Report{Now: now, Replicas: test.replicas}}
		got := s.source().Read(t.Context())
		if s.rules.Global.String() != test.want {
			t.Errorf("%s: %s, expected %s", name, s.rules.Global, test.want)
		}
		warns := false
		for _, c := range got.Conditions {
			warns = warns || c.Type == "settings" && strings.Contains(c.Message, "limits of a are unknown")
		}
		if warns != test.warns {
			t.Errorf("%s: %+v", name, got.Conditions)
		}
	}
}

// TestAWorkersOwnSnapshot replaces its heartbeat, and is all there is while Redis is down.
func TestAWorkersOwnSnapshot(t *testing.T) {
	s := &stored{Report: report.Report{Now: now, Replicas: []report.Replica{
		replica("a", nil), silentFor(replica("own", waitsFor(wait("nats", "", "old"))), time.Minute),
	}}}
	source := s.source()
	source.This = func() snapshot.Snapshot {
		return replica("own", func(s *snapshot.Snapshot) { s.Held = 7 }).Snapshot
	}
	if got := source.Read(t.Context()); len(got.Replicas) != 2 || got.Replicas[1].Held != 7 || got.Replicas[1].State != "ready" ||
		got.State != Warn || got.Unreadable() != nil {
		t.Errorf("%+v", got)
	}
	s.err = errors.New("redis: dial tcp: connection refused")
	source.This = func() snapshot.Snapshot { return replica("own", waitsFor(wait("nats", "", "no servers"))).Snapshot }
	got := source.Read(t.Context())
	var types []string
	for _, c := range got.Conditions {
		types = append(types, c.Type)
	}
	if got.Unreadable() == nil || fmt.Sprint(types) != "[redis nats]" || len(got.Limits) != 0 || len(got.Replicas) != 1 || got.State != Fail {
		t.Errorf("%+v", got)
	}
	if want := "Not sending: Redis is unavailable: dial tcp: connection refused; NATS is unavailable: no servers."; got.Summary != want {
		t.Errorf("%q, expected %q", got.Summary, want)
	}
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v: expected empty lists", text, err)
	}
}

func TestADamagedKeyHidesOnlyItsOwn(t *testing.T) {
	s := &stored{
		Report:    report.Report{Now: now, Replicas: []report.Replica{replica("a", shows("1/1h", 0))}},
		pausesErr: errors.New("redis: WRONGTYPE Operation against a key"),
	}
	got := s.source().Read(t.Context())
	if got.Unreadable() != nil || len(got.Limits) != 1 || len(got.Replicas) != 1 || got.Conditions[0].Type != "redis" {
		t.Errorf("%+v", got)
	}
}

// TestASilentWorkerIsShown in colour, with its last heartbeat. While Redis refuses writes, no replica can
// store one.
func TestASilentWorkerIsShown(t *testing.T) {
	s := &stored{Report: report.Report{Now: now, Replicas: []report.Replica{silentFor(replica("a", shows("1/1h", 0)), 20*time.Second)}}}
	shown := func() string {
		var out strings.Builder
		kit.Check(t, s.source().Read(t.Context()).WriteText(&out, term.Screen{Colours: true}))
		return out.String()
	}
	row := "REPLICA   STATE    HELD   SETTINGS   VERSION   SEEN\n\x1b[33ma         silent   0      6f1c2d3e   -         20s ago\x1b[0m\n"
	alone := shown()
	s.refuses = errors.New("OOM command not allowed")
	refused := shown()
	if !strings.HasPrefix(alone, "\x1b[31mNot sending: no worker has reported for 20s.\x1b[0m\n") || !strings.HasSuffix(alone, row) {
		t.Errorf("%q", alone)
	}
	if !strings.HasSuffix(refused, row+"While Redis refuses writes, running workers are silent, too.\n") {
		t.Errorf("%q", refused)
	}
}

// TestManyForeignChannelsTakeNoMinutes, although any client of Redis can name 1,000 in each of 200 heartbeats.
func TestManyForeignChannelsTakeNoMinutes(t *testing.T) {
	s := &stored{Report: report.Report{Now: now}}
	for i := range 200 {
		s.Replicas = append(s.Replicas, replica(fmt.Sprint(i), func(s *snapshot.Snapshot) {
			for j := range 1000 {
				s.Channels = append(s.Channels, snapshot.Channel{Name: fmt.Sprint(i, "-", j), Refused: "x"})
			}
			if i == 0 {
				shows("100/30m", 0)(s)
				routes := make([]string, 500)
				for j := range routes {
					routes[j] = fmt.Sprintf("c%d=0-%d", j, j)
				}
				s.Settings.Text["SLACK_ROUTES"], s.Settings.Text["SLACK_CHANNEL"] = strings.Join(routes, ","), "0-0"
			}
		}))
	}
	done := make(chan State, 1)
	go func() { done <- s.source().Read(t.Context()) }()
	select {
	case got := <-done:
		if got.Omitted.Conditions != 200_000-maxConditions || !strings.HasPrefix(got.Summary, "Not sending: ") {
			t.Errorf("%d conditions omitted, %s", got.Omitted.Conditions, got.Summary)
		}
	case <-time.After(time.Minute):
		t.Error("no state after a minute")
	}
}

// TestCountsThatAreNotShown: names beyond the bounds of a Reporter or a Reader.
func TestCountsThatAreNotShown(t *testing.T) {
	s := &stored{Report: report.Report{Now: now, Skipped: 2, Counts: []report.Count{
		{Category: outcome.OtherCategories, Outcome: outcome.Sent, N: 12},
		{Category: outcome.OtherCategories, Outcome: outcome.Dead, Reason: "malformed", N: 100},
		{Category: "errors", Outcome: outcome.Sent, N: 1000},
	}}}
	got := s.source().Read(t.Context())
	if want := (Omitted{Minutes: 20, Events: 12}); got.Omitted != want {
		t.Errorf("%+v, expected %+v", got.Omitted, want)
	}
	var text strings.Builder
	kit.Check(t, got.WriteText(&text, term.Screen{}))
	want := "Counts cover the last hour, as of 2026-11-20T09:10:38Z, and lag by up to two seconds. They leave out 20 minutes with too many categories " +
		"and sources. 12 events of further categories count only in global."
	if !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}

// TestOwnTimesAreByRedisClock, as the times of the other replicas.
func TestOwnTimesAreByRedisClock(t *testing.T) {
	s := &stored{Report: report.Report{Now: now}}
	source := s.source()
	source.This = func() snapshot.Snapshot {
		behind := ago(2 * time.Hour)
		w := snapshot.Wait{For: "nats", Reason: "no servers", Since: behind.Add(-time.Minute)}
		return snapshot.Snapshot{ID: "own", Time: behind, Waits: []snapshot.Wait{w}}
	}
	if got := source.Read(t.Context()).Conditions[0]; !got.Since.Equal(ago(time.Minute)) {
		t.Errorf("%+v, expected since a minute", got)
	}
}

// TestAStateIsBounded whatever Redis holds.
func TestAStateIsBounded(t *testing.T) {
	s := &stored{Report: report.Report{Now: now, More: 10}, orders: steering.State{Now: now}}
	hostile := "\x1b[2J\u202e"
	for i := range 300 {
		s.Replicas = append(s.Replicas, replica(fmt.Sprint(hostile, i), func(s *snapshot.Snapshot) {
			shows("100/30m", time.Duration(i)*time.Minute)(s)
			s.Settings.Hash, s.Version = fmt.Sprint(i), strings.Repeat("v", 60_000)
			for j := range 10 {
				s.Channels = append(s.Channels, snapshot.Channel{Name: fmt.Sprint(hostile, i, j), Refused: hostile})
			}
		}))
		order, err := steering.NewMute(fmt.Sprint("noise", i), "alice", strings.Repeat("é", 200))
		kit.Check(t, err)
		order.Since, order.Until = ago(time.Duration(i)*time.Second), now.Add(time.Hour)
		s.orders.Orders = append(s.orders.Orders, order)
	}
	for i := range 10_000 {
		s.recent = append(s.recent, fmt.Sprint("category", i))
	}
	s.recent = append([]string{hostile + ".*", ">", "", strings.Repeat("x", 200)}, s.recent...)
	s.Counts = []report.Count{{Category: "burning", Outcome: outcome.Dropped, Reason: outcome.Category, N: 1000}}
	got := s.source().Read(t.Context())
	if len(s.peeked) != maxPeeked || s.peeked[0] != "burning" || s.peeked[1] != "category0" {
		t.Errorf("looked at %d categories, %q first, expected the one with the most drops, then the latest",
			len(s.peeked), s.peeked[:2])
	}
	if len(got.Limits) != 1+maxCategories || got.Limits[1].Scope != "category/burning" || len(got.Replicas) != maxReplicas ||
		len(got.Overrides) != maxOverrides || len(got.Conditions) != maxConditions {
		t.Errorf("%d limits, %d replicas, %d overrides, %d conditions", len(got.Limits), len(got.Replicas), len(got.Overrides), len(got.Conditions))
	}
	if want := (Omitted{Conditions: 3001 - maxConditions, Limits: 10_001 - maxCategories, Replicas: 260, Overrides: 250}); got.Omitted != want {
		t.Errorf("omitted %+v, expected %+v", got.Omitted, want)
	}
	if newest := got.Replicas[0].ID; newest != term.Printable(hostile+"0") || got.Overrides[0].Name != "noise0" {
		t.Errorf("%q and %q first, expected the newest", newest, got.Overrides[0].Name)
	}
	var text, document strings.Builder
	kit.Check(t, got.WriteText(&text, term.Screen{}))
	kit.Check(t, term.NewJSON(&document).Encode(got))
	for _, out := range []string{text.String(), document.String()} {
		unsafe := strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' })
		if len(out) > 100_000 || unsafe {
			t.Errorf("%d bytes, with unsafe characters: %t\n%.2000s", len(out), unsafe, out)
		}
	}
}
