package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// behind is two replicas: #alerts is paused in one of them and #builds has a pace, while #quiet takes what
// comes.
func behind() []stats.Replica {
	return []stats.Replica{
		{ID: "a", Heartbeat: stats.Heartbeat{
			Held: 25, Waits: []stats.Wait{{For: "slack", Channel: "#alerts", Reason: "Slack asked to wait 12 s", Since: now.Add(-4 * time.Second)}},
			Unposted: []stats.Unposted{
				{Channel: "#alerts", Events: 40, Parked: 20, Oldest: now.Add(-3 * time.Minute), Why: "slack"},
				{Channel: "#builds", Events: 1, Oldest: now.Add(-1500 * time.Millisecond), Why: "pace"},
			},
		}},
		{ID: "b", Heartbeat: stats.Heartbeat{
			Held: 3,
			Unposted: []stats.Unposted{
				{Channel: "#alerts", Events: 2, Oldest: now.Add(-time.Minute), Why: "pace"},
				{Channel: "#quiet", Events: 1, Oldest: now.Add(time.Second)}, // by a clock that is ahead
			},
		}},
	}
}

func TestAStatusAddsUpWhatWaitsForChannels(t *testing.T) {
	k := &known{usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}, replicas: behind()}
	k.hour.Now = now
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	want := []Unposted{
		{"#alerts", 42, 180, "slack", "#alerts: 42 events wait to be posted, the oldest for 3m; Slack takes no posts at the moment"},
		{"#builds", 1, 1.5, "pace", "#builds: 1 event waits to be posted, the oldest for 2s; the pace of the channel"},
		{"#quiet", 1, 0, "", "#quiet: 1 event waits to be posted, the oldest for 0"},
	}
	if diff := cmp.Diff(want, got.Unposted); diff != "" {
		t.Errorf("unposted (-want +got):\n%s", diff)
	}
	if got.Held != 43 {
		t.Errorf("%d events are held, expected 43: those of #quiet wait for nothing", got.Held)
	}
}
