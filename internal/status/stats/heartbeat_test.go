package stats_test

import (
	"testing"

	"notifier/internal/status/stats"
)

func TestAHeartbeatCountsEachHeldEventOnce(t *testing.T) {
	alerts := stats.Unposted{Channel: "#alerts", Events: 42, Parked: 30, Why: "slack"}
	builds := stats.Unposted{Channel: "#builds", Events: 7, Why: "pace"}
	working := stats.Unposted{Channel: "#working", Events: 3}
	redis, letters, paused := stats.Wait{For: "redis"}, stats.Wait{For: "dead_letter"}, stats.Wait{For: "slack", Channel: "#alerts"}
	unposted := []stats.Unposted{alerts, builds, working}
	for name, test := range map[string]struct {
		beat stats.Heartbeat
		want int
	}{
		"at work":                      {stats.Heartbeat{Held: 5, Unposted: []stats.Unposted{working}}, 0},
		"a pace":                       {stats.Heartbeat{Held: 10, Unposted: []stats.Unposted{builds, working}}, 7},
		"a channel and a pace":         {stats.Heartbeat{Held: 22, Waits: []stats.Wait{paused}, Unposted: unposted}, 49},
		"dead events and a pace":       {stats.Heartbeat{Held: 10, Dead: 2, Waits: []stats.Wait{letters}, Unposted: unposted[1:]}, 9},
		"everything":                   {stats.Heartbeat{Held: 5, Waits: []stats.Wait{redis}}, 5},
		"everything, with a channel's": {stats.Heartbeat{Held: 22, Waits: []stats.Wait{redis, paused}, Unposted: unposted}, 22 + 30},
	} {
		if got := test.beat.HeldEvents(); got != test.want {
			t.Errorf("%s: %d, expected %d", name, got, test.want)
		}
	}
	beat := stats.Heartbeat{Held: 22, Dead: 2, Unposted: unposted}
	for _, test := range []struct {
		wait stats.Wait
		want int
	}{{paused, 42}, {redis, 52}, {letters, 2}, {stats.Wait{For: "slack", Channel: "#quiet"}, 0}} {
		if got := beat.HeldFor(test.wait); got != test.want {
			t.Errorf("for %+v: %d, expected %d", test.wait, got, test.want)
		}
	}
}

func TestAWaitNamesItsChannel(t *testing.T) {
	for want, wait := range map[string]stats.Wait{
		"#alerts: Slack asked to wait 12 s":  {For: "slack", Channel: "#alerts", Reason: "Slack asked to wait 12 s"},
		"#alerts: unavailable: http_503":     {For: "slack", Channel: "#alerts", Reason: "slack: unavailable: http_503"},
		"slack: unavailable: connect_failed": {For: "slack", Reason: "slack: unavailable: connect_failed"},
	} {
		if got := wait.Text(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
