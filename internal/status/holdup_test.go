package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

func TestHoldupNamesWhatKeepsACategory(t *testing.T) {
	pauseOf := func(channel string) []ratelimit.Pause {
		return []ratelimit.Pause{{Channel: channel, Left: 17500 * time.Millisecond}}
	}
	waits := func(list ...stats.Wait) stats.Heartbeat { return stats.Heartbeat{Waits: list} }
	paced := stats.Heartbeat{Unposted: []stats.Unposted{{Channel: "#a", Events: 4, Oldest: now, Why: "pace"}}}
	for name, test := range map[string]struct {
		known known
		beat  stats.Heartbeat
		want  []string
	}{
		"nothing":                 {known{}, stats.Heartbeat{}, nil},
		"its channel is paused":   {known{pauses: pauseOf("#a")}, stats.Heartbeat{}, []string{"#a: Slack asked to wait 18 s"}},
		"another one is":          {known{pauses: pauseOf("#b")}, stats.Heartbeat{}, nil},
		"the workspace is paused": {known{pauses: pauseOf("")}, stats.Heartbeat{}, []string{"Slack asked to wait 18 s"}},
		"a pause goes before what was said of it": {
			known{pauses: pauseOf("#a")}, waits(stats.Wait{For: "slack", Channel: "#a", Reason: "Slack asked to wait 600 s"}),
			[]string{"#a: Slack asked to wait 18 s"},
		},
		"the token": {
			known{}, waits(stats.Wait{For: "credentials", Reason: "slack: credentials: token_revoked"}),
			[]string{"slack: credentials: token_revoked"},
		},
		"another channel, the clock, letters of nobody": {
			known{}, waits(stats.Wait{For: "slack", Channel: "#b"}, stats.Wait{For: "redis_clock"}, stats.Wait{For: "dead_letter"}), nil,
		},
		"the pace": {known{turn: 12 * time.Second}, paced, []string{"#a: its turn in about 42s at most, 4 events wait in the pace 1/10s"}},
		"another worker died": {
			known{}, stats.Heartbeat{}, []string{"dead has not reported for 8s: if it held this event, another worker gets it"},
		},
		"silence": {
			known{hour: stats.Hour{Now: now.Add(40 * time.Second)}}, stats.Heartbeat{}, []string{"no worker has reported for 40s"},
		},
	} {
		k := test.known
		if k.hour.Now.IsZero() {
			k.hour.Now = now
		}
		test.beat.Failing = []stats.Failing{
			{Category: "errors", EventID: "e-1", Error: "http_500", Next: now},
			{Category: "errors", EventID: "e-2", Error: "timeout"},
			{Category: "deploys", EventID: "e-1", Error: "timeout"},
		}
		k.replicas = []stats.Replica{{ID: "r", Seen: now, Silent: name == "silence", Heartbeat: test.beat}}
		if name == "another worker died" {
			k.replicas = append(k.replicas, stats.Replica{ID: "dead", Seen: now.Add(-8 * time.Second), Silent: true})
		}
		source := k.source()
		source.Own = worker(t, "10/30m")
		source.Own.Channel, source.Own.Limits.Pace = "#a", tier(1, 10*time.Second)
		h, err := source.Holdup(t.Context(), "errors", "e-1")
		kit.Check(t, err)
		var got []string
		for _, wait := range h.Waits {
			got = append(got, wait.Text())
		}
		if diff := cmp.Diff(test.want, got); diff != "" || h.Channel != "#a" {
			t.Errorf("%s: %q (-want +got)\n%s", name, h.Channel, diff)
		}
		if h.Error != "http_500" || !h.Next.Equal(now) {
			t.Errorf("%s: %q, again at %s, expected what Slack has answered to this event", name, h.Error, h.Next)
		}
	}
}
