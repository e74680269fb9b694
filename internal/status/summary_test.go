package status

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
)

// summaryOf is the summary where Redis takes writes, or does for the worker that reads what its This says.
func summaryOf(s Status) Summary { return view{s, redisOf(s.This, nil), nil}.summary() }

// said is a summary as lines.
func said(s Summary) []string {
	lines := []string{s.Level + ": " + s.Text}
	for _, line := range s.Attention {
		lines = append(lines, line.Level+": "+line.Text)
	}
	return lines
}

// ready are replicas that have reported, all of them with these waits.
func ready(n int, waits ...stats.Wait) []stats.Replica {
	var list []stats.Replica
	for i := range n {
		beat := stats.Heartbeat{Ready: true, Started: now.Add(-time.Hour), Held: len(waits), Waits: waits}
		list = append(list, stats.Replica{ID: fmt.Sprint("r", i+1), Seen: now, Heartbeat: beat})
	}
	return list
}

func TestSummary(t *testing.T) {
	at := func(d time.Duration) *time.Time { moment := now.Add(d); return &moment }
	free := Scope{Tiers: []Tier{{Limit: "5/1h", Used: 1, Max: 5}}, Forecast: &Forecast{Sends: true}}
	full := Scope{
		Tiers: []Tier{{Limit: "5/1h", Used: 5, Max: 5, FreeS: 90}}, NextFree: at(90 * time.Second),
		Forecast: &Forecast{Reason: "global", At: at(90 * time.Second)},
	}
	some := func(category string, wait time.Duration, dropped int64) Scope {
		return Scope{Category: category, NextFree: at(wait), Dropped: dropped}
	}
	wait := func(of, channel, reason string) stats.Wait {
		kind := ""
		if of == waitRedis {
			kind = stats.TroubleKind(reason)
		}
		return stats.Wait{For: of, Channel: channel, Reason: reason, Kind: kind, Since: now.Add(-40 * time.Second)}
	}
	revoked, nats := wait("credentials", "", "slack: credentials: token_revoked"), wait("nats", "", "no servers")
	slack, redis := wait("slack", "#a", "slack: unavailable: http_503"), wait(waitRedis, "", "OOM command not allowed")
	asked := wait("slack", "#a", "Slack asked to wait 12 s")
	worker := func(state, kind string) *This {
		return &This{Redis: Redis{State: state, Kind: kind, Reason: "the error", Since: at(-40 * time.Second)}}
	}
	with := func(replicas []stats.Replica, change func(r *stats.Replica)) []stats.Replica {
		change(&replicas[len(replicas)-1])
		return replicas
	}
	silent := func(r *stats.Replica) { r.Seen, r.Silent, r.Ready = now.Add(-23*time.Second), true, false }
	const working = "ok: Working. 1 of 5 global slots are taken; no limit is full."
	for name, test := range map[string]struct {
		status  Status
		refused string // with which Redis refuses writes
		want    []string
	}{
		"all is well":  {Status{Replicas: ready(3)}, "", []string{working}},
		"nobody works": {Status{}, "", []string{"bad: Nothing is sent: no worker is running."}},
		"all are silent": {
			Status{Replicas: with(ready(1), silent)}, "",
			[]string{"bad: Nothing is sent: no worker has reported for 23s.", "note: Replica r1 has not reported for 23s"},
		},
		"one is silent": {
			Status{Replicas: with(ready(2), silent)}, "",
			[]string{working, "note: Replica r2 has not reported for 23s"},
		},
		"none is ready": {
			Status{Replicas: with(ready(1), func(r *stats.Replica) { r.Ready = false })}, "",
			[]string{"bad: Nothing is sent: no worker is ready.", "note: Replica r1 is not ready"},
		},
		"one has just been started": {
			Status{Replicas: with(ready(1), func(r *stats.Replica) { r.Ready, r.Started = false, now })}, "", []string{working},
		},
		"Redis is full, as a command sees it": {
			Status{}, "OOM command not allowed", []string{"bad: Nothing is sent: Redis is full (maxmemory)."},
		},
		"Redis is full, and reports are old": {
			Status{Replicas: with(ready(1), silent)}, "OOM command not allowed",
			[]string{"bad: Nothing is sent: Redis is full (maxmemory)."},
		},
		"Redis is full, as a worker sees it": {
			Status{Replicas: ready(1, redis), Held: 3, This: worker(RedisRefuses, stats.Full)}, "",
			[]string{"bad: Nothing is sent: Redis is full (maxmemory) (for 40s). 3 events are held.", "bad: Waiting for redis (for 40s, r1, 1 event held): OOM command not allowed"},
		},
		"Redis was full": {
			Status{Replicas: ready(2), This: worker(RedisCountsOnly, stats.Full)}, "",
			[]string{
				"note: Working, but counts have not been stored for 40s (Redis is full (maxmemory)): figures are incomplete, and other replicas may be missing.",
				"note: Counts are not stored: the error",
			},
		},
		"all wait for Redis": {
			Status{Replicas: ready(2, redis), Held: 2}, "",
			[]string{"bad: Nothing is sent: Redis is full (maxmemory) (for 40s). 2 events are held.", "bad: Waiting for redis (for 40s, 2 replicas, 2 events held): OOM command not allowed"},
		},
		"the token is revoked, and one has tried": {
			Status{Replicas: append(ready(1, revoked), ready(2)...), Held: 1, Global: Scope{Tiers: free.Tiers, LastSent: at(-time.Minute)}}, "",
			[]string{
				"bad: Nothing is sent: Slack does not accept the token or the webhook (for 40s). 1 event is held.",
				"bad: Waiting for credentials (for 40s, r1, 1 event held): slack: credentials: token_revoked",
			},
		},
		"others have another token": {
			Status{Replicas: append(ready(1, revoked), ready(2)...), Held: 1, Global: Scope{Tiers: free.Tiers, LastSent: at(-time.Second)}}, "",
			[]string{
				"note: Partly working: 1 of 3 replicas wait, because Slack does not accept the token or the webhook. 1 event is held.",
				"bad: Waiting for credentials (for 40s, r1, 1 event held): slack: credentials: token_revoked",
			},
		},
		"one has no NATS": {
			Status{Replicas: append(ready(1, nats), ready(2)...)}, "",
			[]string{"note: Partly working: 1 of 3 replicas wait, because NATS is unavailable.", "bad: Waiting for nats (for 40s, r1, 1 event held): no servers"},
		},
		"all have no NATS": {
			Status{Replicas: ready(1, nats)}, "",
			[]string{"bad: Nothing is sent: NATS is unavailable (for 40s).", "bad: Waiting for nats (for 40s, r1, 1 event held): no servers"},
		},
		"dead letters are not taken": {
			Status{Replicas: ready(1, wait("dead_letter", "", "full"))}, "",
			[]string{"note" + working[2:], "bad: Waiting for dead_letter (for 40s, r1, 0 events held): full"},
		},
		"one was killed while it waited": {
			Status{Replicas: append(ready(1), stats.Replica{ID: "r2", Seen: now.Add(-6 * time.Second), Silent: true})}, "",
			[]string{working, "note: Replica r2 has not reported for 6s"},
		},
		"one of those that run has no NATS": {
			Status{Replicas: with(append(ready(1, nats), ready(2)...), silent)}, "",
			[]string{
				"note: Partly working: 1 of 2 replicas wait, because NATS is unavailable.",
				"bad: Waiting for nats (for 40s, r1, 1 event held): no servers", "note: Replica r2 has not reported for 23s",
			},
		},
		"Slack fails in a channel": {
			Status{Replicas: ready(1, slack), Held: 2}, "",
			[]string{"bad: Nothing is posted to #a: Slack has not accepted messages (for 40s). 2 events are held.", "bad: #a: unavailable: http_503 (for 40s, r1, 0 events held)"},
		},
		"a channel is paused": {
			Status{Replicas: ready(1, asked), Pauses: []Pause{{Channel: "#a", LeftS: 12, Text: "#a: Slack asked to wait 12 s"}}}, "",
			[]string{"note: Nothing is posted to #a for 12s, because Slack asked to wait.", "bad: #a: Slack asked to wait 12 s (for 40s, r1, 0 events held)"},
		},
		"the workspace is paused": {
			Status{Replicas: ready(1), Held: 1, Pauses: []Pause{{LeftS: 12, Text: "Slack asked to wait 12 s"}}}, "",
			[]string{"note: Nothing is sent for 12s, because Slack asked to wait. 1 event is held.", "bad: Slack asked to wait 12 s"},
		},
		"channels refuse": {
			Status{Replicas: with(ready(2), func(r *stats.Replica) { r.Refused = map[string]string{"C1": "is_archived"} })}, "",
			[]string{
				"bad: Nothing is posted to C1, because Slack refuses the channel itself (is_archived): events for it are dead-lettered.",
			},
		},
		"channels are behind": {
			Status{Replicas: ready(1), Unposted: []Unposted{{Text: "kept", Why: "pace", Channel: "#a"}, {Text: "old", OldestS: 5, Channel: "#b"}, {Text: "new", Channel: "#c"}}}, "",
			[]string{working, "note: kept", "note: old"},
		},
		"all is full": {Status{Replicas: ready(1), Global: full}, "", []string{"note: Full: all 5 global slots are taken. Everything is dropped for 1m30s."}},
		"two tiers are full": {
			Status{Replicas: ready(1), Global: Scope{
				Tiers: []Tier{
					{Limit: "5/1h", Used: 5, Max: 5, FreeS: 90}, {Limit: "9/24h", Used: 9, Max: 9, FreeS: 600},
					{Limit: "4/2h", Used: 4, Max: 4, FreeS: 60},
				},
				NextFree: at(10 * time.Minute), Forecast: &Forecast{Reason: "global", At: at(10 * time.Minute)},
			}}, "",
			[]string{"note: Full: all 9 global slots are taken. Everything is dropped for 10m."},
		},
		"all is full, and the sentence says otherwise": {
			Status{Replicas: ready(1, nats), Global: full}, "",
			[]string{
				"bad: Nothing is sent: NATS is unavailable (for 40s).", "bad: Waiting for nats (for 40s, r1, 1 event held): no servers",
				"note: The global limit is full for 1m30s: everything is dropped",
			},
		},
		"the rest is kept": {
			Status{
				Replicas: ready(1), Reserves: []ratelimit.Reserve{{Category: "payments", Kept: 2, Tier: tier(5, time.Hour)}, {Category: "used", Tier: tier(5, time.Hour)}},
				Global: Scope{Tiers: []Tier{{Limit: "5/1h", Used: 3, Max: 5, Kept: 2}}},
			}, "",
			[]string{"note: Full for most: 2 global slots are left, kept for payments. All others are dropped."},
		},
		"one is full": {
			Status{Replicas: ready(1), Categories: []Scope{some("errors", time.Minute, 0)}}, "",
			[]string{"note: Working. 1 of 5 global slots are taken; errors is full for 1m."},
		},
		"three are full": {
			Status{Replicas: ready(1), Groups: []Scope{{Group: "g", NextFree: at(time.Hour)}}, Categories: []Scope{some("a", time.Minute, 1), some("b", time.Second, 9)}}, "",
			[]string{"note: Working. 1 of 5 global slots are taken; 3 limits are full: b is full for 1s."},
		},
		"dead": {
			Status{Replicas: ready(1), Outcomes: []Outcome{{"dead", "malformed", 3}, {"sent", "", 9}}}, "",
			[]string{"note" + working[2:], "bad: 3 events ended as dead in the last hour: 3 malformed. Replayed ones count; \"notifier dead list\" shows the rest."},
		},
		"one is dead": {
			Status{Replicas: ready(1), Outcomes: []Outcome{{"dead", "undeliverable", 1}}}, "",
			[]string{"note" + working[2:], "bad: 1 event ended as dead in the last hour: 1 undeliverable. Replayed ones count; \"notifier dead list\" shows the rest."},
		},
		"none of those that were looked at is full": {
			Status{Replicas: ready(1), Categories: []Scope{{Category: "a"}, {Category: "b"}}, More: 7}, "",
			[]string{"ok: Working. 1 of 5 global slots are taken; none of the 2 listed categories is full."},
		},
		"some of those that were looked at are full": {
			Status{Replicas: ready(1), Categories: []Scope{some("a", time.Minute, 1), some("b", time.Second, 9), some("c", time.Second, 0)}, More: 7}, "",
			[]string{"note: Working. 1 of 5 global slots are taken; at least 3 limits are full: b is full for 1s."},
		},
		"a time is a lower bound": {
			Status{Replicas: ready(1), Categories: []Scope{{Category: "a", NextFree: at(time.Minute), Tiers: []Tier{{FreeS: 60, AtLeast: true}}}}}, "",
			[]string{"note: Working. 1 of 5 global slots are taken; a is full for at least 1m."},
		},
		"steered": {
			Status{Replicas: ready(1), Steering: []steering.Order{{Kind: steering.Mute, Target: "a", Until: now.Add(time.Minute), By: "bob", Reason: "moved"}}}, "",
			[]string{working, "note: mute of a until 2026-11-20T14:03:30Z (1m), by bob: moved"},
		},
		"much steered": {Status{Replicas: ready(1), MoreSteering: 11}, "", []string{working, "note: 11 mutes and temporary limits are in force"}},
		"settings": {
			Status{Replicas: ready(1), Settings: Settings{Warnings: []string{"They differ."}}}, "", []string{"note" + working[2:], "bad: They differ."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.status.Time = now
			if test.status.Global.Tiers == nil {
				test.status.Global = free
			}
			var refused error
			if test.refused != "" {
				refused = errors.New(test.refused)
			}
			if diff := cmp.Diff(test.want, said(view{test.status, redisOf(test.status.This, refused), nil}.summary())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOneFailureSaysNothingOfItsChannel: "nothing is posted" is said only as long as that is so, whichever
// replica posts.
func TestOneFailureSaysNothingOfItsChannel(t *testing.T) {
	begin := now.Add(-40 * time.Second)
	tried := func(channel string, events int) (list []stats.Failing) {
		for i := range events {
			list = append(list, stats.Failing{Channel: channel, Category: "errors", EventID: fmt.Sprint(channel, i)})
		}
		return list
	}
	failing := func(channel string, events int) stats.Replica { // nine wait there, of which so many were tried
		return stats.Replica{ID: "r1", Seen: now, Heartbeat: stats.Heartbeat{
			Ready: true, Waits: []stats.Wait{{For: "slack", Channel: channel, Reason: "slack: unavailable: http_403", Since: begin}},
			Unposted: []stats.Unposted{{Channel: channel, Events: 9, Why: "slack"}},
			Failing:  tried(channel, events),
		}}
	}
	before, since := begin.Add(-time.Second), begin.Add(time.Second)
	for name, test := range map[string]struct {
		posted   map[string]time.Time
		replicas []stats.Replica
		want     string
	}{
		"nothing was posted": {nil, []stats.Replica{failing("#a", 2)}, "bad: Nothing is posted to #a: Slack has not accepted messages (for 40s)."},
		"one was tried": {
			nil, []stats.Replica{failing("#a", 1)},
			"bad: Slack refused one event for #a: unavailable: http_403 (for 40s); nothing was posted there since.",
		},
		"one was tried by two replicas": {
			nil, []stats.Replica{failing("#a", 1), failing("#a", 1)},
			"bad: Slack refused one event for #a: unavailable: http_403 (for 40s); nothing was posted there since.",
		},
		"nothing was posted since": {
			map[string]time.Time{"#a": before, "#b": since}, []stats.Replica{failing("#a", 2)},
			"bad: Nothing is posted to #a: Slack has not accepted messages (for 40s).",
		},
		"another one posts": {
			map[string]time.Time{"#a": since}, append(ready(2)[1:], failing("#a", 1)),
			"note: Slack refused one event for #a: unavailable: http_403 (for 40s).",
		},
		"several": {
			map[string]time.Time{"#a": since, "#b": since}, []stats.Replica{failing("#a", 2), failing("#b", 1)},
			"note: Slack refused 2 events for #a: unavailable: http_403 (for 40s), and some for other channels.",
		},
		"the worst first": {
			map[string]time.Time{"#a": since}, []stats.Replica{failing("#a", 2), failing("#b", 3)},
			"bad: Nothing is posted to #b: Slack has not accepted messages (for 40s).",
		},
	} {
		got := said(view{Status{Time: now, Replicas: test.replicas}, Redis{State: RedisOK}, test.posted}.summary())
		if got[0] != test.want {
			t.Errorf("%s: %q, expected %q", name, got[0], test.want)
		}
	}
	config := worker(t, "10/30m")
	config.Routes, _ = ParseRoutes("errors=#b")
	hour := stats.Hour{LastSent: map[string]time.Time{"errors": since, "a": before, "b": begin}}
	if diff := cmp.Diff(map[string]time.Time{"#a": begin, "#b": since}, lastPosts(config, hour)); diff != "" {
		t.Errorf("last posts (-want +got):\n%s", diff)
	}
}

// TestAChannelThatOnlySomeReplicasCountAsRefused: "nothing is posted" is said only where nobody posts.
func TestAChannelThatOnlySomeReplicasCountAsRefused(t *testing.T) {
	refusing := stats.Replica{ID: "r9", Seen: now, Heartbeat: stats.Heartbeat{Ready: true, Refused: map[string]string{"#a": "is_archived"}}}
	silent := stats.Replica{ID: "r0", Seen: now.Add(-40 * time.Second), Silent: true}
	nothing := "bad: Nothing is posted to #a, because Slack refuses the channel itself (is_archived): events for it are dead-lettered."
	some := "note: 1 of 2 replicas count #a as refused (is_archived)."
	for name, test := range map[string]struct {
		ago      time.Duration // when something was last posted to #a
		replicas []stats.Replica
		want     string
	}{
		"another one posts":     {20 * time.Second, append(ready(1), refusing), some},
		"another one posted":    {time.Minute, append(ready(1), refusing), nothing},
		"all refuse":            {20 * time.Second, []stats.Replica{refusing, refusing}, nothing},
		"no other replica runs": {20 * time.Second, []stats.Replica{silent, refusing}, nothing},
	} {
		posted := map[string]time.Time{"#a": now.Add(-test.ago)}
		got := view{Status{Time: now, Replicas: test.replicas}, Redis{State: RedisCountsOnly}, posted}.summary()
		// the counts are listed, and the channel is not repeated
		if lines := said(got); lines[0] != test.want || len(lines) != 2 {
			t.Errorf("%s: %q, expected %q", name, lines, test.want)
		}
	}
	replicas := []stats.Replica{refusing, {ID: "r1", Seen: now, Heartbeat: stats.Heartbeat{Ready: true, Refused: map[string]string{"#b": "not_in_channel"}}}}
	posted := map[string]time.Time{"#a": now}
	want := []string{
		"bad: Nothing is posted to #b, because Slack refuses the channel itself (not_in_channel): events for it are dead-lettered.",
		"note: 1 of 2 replicas count #a as refused (is_archived)",
	}
	if diff := cmp.Diff(want, said(view{Status{Time: now, Replicas: replicas}, Redis{State: RedisOK}, posted}.summary())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSummaryIsBounded: of forty things that are wrong the first are listed.
func TestSummaryIsBounded(t *testing.T) {
	s := Status{Time: now, Replicas: ready(48)}
	for i := range s.Replicas {
		if s.Replicas[i].Silent = i >= 40; i >= 40 {
			continue
		}
		s.Replicas[i].Waits = []stats.Wait{{For: "nats", Reason: fmt.Sprint("reason ", i), Since: now}}
	}
	got := summaryOf(s).Attention
	if len(got) != 21 || got[20].Text != "and 26 more" {
		t.Errorf("%d lines, the last is %+v", len(got), got[len(got)-1])
	}
	kinds := map[string]bool{}
	for _, line := range got {
		kinds[line.Kind] = true
	}
	if len(kinds) != len(got) {
		t.Errorf("several lines have one kind: %+v", got)
	}
}

// TestSummaryWithoutRedis: what a worker knows by itself.
func TestSummaryWithoutRedis(t *testing.T) {
	since := now.Add(-40 * time.Second)
	refused := errors.New("dial tcp: connection refused")
	for name, test := range map[string]struct {
		redis Redis
		held  int
		want  []string
	}{
		"it cannot decide": {
			Redis{State: RedisUnavailable, Kind: stats.Unreachable, Since: &since}, 3,
			[]string{"bad: Nothing is sent: Redis is unavailable (for 40s). 3 events are held.", "bad: dial tcp: connection refused"},
		},
		"it goes on": {
			Redis{State: RedisOK}, 0,
			[]string{"bad: The status cannot be read: Redis is unavailable. This worker goes on.", "bad: dial tcp: connection refused"},
		},
	} {
		this := &This{Replica: "a", Time: now, Held: test.held, Redis: test.redis, Beat: stats.Heartbeat{Ready: true}}
		if got := said(NotKnown(refused, this).Summary); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
}
