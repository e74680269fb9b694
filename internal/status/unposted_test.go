package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/stats"
	"notifier/internal/term"
	"notifier/internal/testkit"
)

// behind is two replicas: #alerts is paused in one of them and #builds has a pace, while #quiet takes what comes.
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
	testkit.Check(t, err)
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

func TestTheTableNamesChannelsThatAreBehind(t *testing.T) {
	replicas := behind()
	status := Status{Time: now, Replicas: replicas, Unposted: UnpostedOf(replicas, now)}
	text := status.Table(term.Screen{})
	for _, want := range []string{
		"\n#alerts: 42 events wait to be posted, the oldest for 3m; Slack takes no posts at the moment\n",
		"\n#builds: 1 event waits to be posted, the oldest for 2s; the pace of the channel\n",
		"\n  a has been waiting for slack for 4s and holds 40 events: #alerts: Slack asked to wait 12 s\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("expected %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "#quiet") {
		t.Errorf("an event that waits for nothing is shown at once:\n%s", text)
	}
	status.Unposted[2].OldestS = 5
	if text := status.Table(term.Screen{}); !strings.Contains(text, "\n#quiet: 1 event waits to be posted") {
		t.Errorf("an event that has waited for 5 s is not shown:\n%s", text)
	}
}
