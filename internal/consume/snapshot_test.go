package consume

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/snapshot"
)

func TestHeldEventsAreCountedOnceAndByCause(t *testing.T) {
	alerts := snapshot.Channel{Name: "#alerts", Queued: 42, Why: "slack"}
	builds := snapshot.Channel{Name: "#builds", Queued: 7, Why: "pace"}
	working := snapshot.Channel{Name: "#working", Queued: 3}
	alertsLost := snapshot.Wait{For: "slack", Channel: "#alerts"}
	type (
		waits    []snapshot.Wait
		channels []snapshot.Channel
		causes   map[string]int
	)
	for name, test := range map[string]struct {
		waits    waits
		channels channels
		total    int
		want     causes
	}{
		"two channels": {waits{alertsLost}, channels{alerts, builds, working}, 49, causes{"slack": 42, "pace": 7}},
		"Redis":        {waits{{For: "redis"}}, channels{working}, 65, causes{"redis": 65}},
		"Redis and one channel": {
			waits{{For: "redis"}, alertsLost}, channels{alerts, builds}, 65,
			causes{"redis": 65, "slack": 42, "pace": 7},
		},
		"all of Slack": {
			waits{{For: "slack"}, alertsLost}, channels{alerts, builds}, 65, causes{"slack": 65, "pace": 7},
		},
		"letters and a pace": {waits{{For: "dead_letter"}}, channels{builds}, 9, causes{"dead_letter": 2, "pace": 7}},
		"Redis's clock":      {waits{{For: "redis_clock"}}, channels{working}, 0, causes{}},
	} {
		s := snapshot.Snapshot{InFlight: 65, Waits: test.waits, Channels: test.channels}
		total, byCause := held(s, 2)
		if diff := cmp.Diff(map[string]int(test.want), byCause); diff != "" || total != test.total {
			t.Errorf("%s: %d held, expected %d; by cause (-want +got):\n%s", name, total, test.total, diff)
		}
	}
}
