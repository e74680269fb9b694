package snapshot_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/snapshot"
)

func TestLinesDescribeConditions(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 10, 0, 0, time.UTC)
	stuck := uint64(2)
	s := snapshot.Snapshot{
		Time: now, InFlight: 65, Held: 51, HeldFor: map[string]int{"slack": 42, "pace": 7, "dead_letter": 2},
		Waits: []snapshot.Wait{
			{For: "dead_letter", Reason: "dead_letter: maximum bytes exceeded", Since: now.Add(-time.Hour)},
			{For: "slack", Channel: "#alerts", Reason: "http_503", Since: now.Add(-4 * time.Minute)},
			{For: "slack", Channel: "#gone", Reason: "http_503", Since: now.Add(time.Second)},
		},
		Channels: []snapshot.Channel{
			{Name: "#alerts", Queued: 42, Why: "slack"},
			{Name: "#builds", Queued: 7, Why: "pace"},
			{Name: "#deploys", Refused: "is_archived"},
		},
		Streams: []snapshot.Stream{
			{Name: "NOTIFY", Messages: 9, MaxMessages: 10, Stuck: &stuck},
			{Name: "NOTIFY_DEAD", Bytes: 80, MaxBytes: 100, DiscardsOld: true},
			{Name: "ROOMY", Bytes: 79, MaxBytes: 100},
			{Name: "UNKNOWN", Unknown: "no reply"},
		},
	}
	want := []string{
		"dead_letter: maximum bytes exceeded, 2 held, for 1h",
		"slack #alerts: http_503, 42 queued, for 4m",
		"slack #gone: http_503, 0 queued, for 0",
		"channel #deploys: refuses every message: is_archived",
		"stream NOTIFY: 90% of its max messages used; a full stream refuses new messages",
		"stream NOTIFY: 2 events will never be delivered",
		"stream NOTIFY_DEAD: 80% of its max bytes used; a full stream deletes its oldest messages",
		"51 of 65 in flight held: dead_letter 2, pace 7, slack 42",
	}
	if diff := cmp.Diff(want, s.Lines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	idle := snapshot.Snapshot{Time: now, InFlight: 3, Channels: []snapshot.Channel{{Name: "#alerts", Queued: 3}}}
	if lines := idle.Lines(); lines != nil {
		t.Errorf("%q of a worker at work, expected nothing", lines)
	}
}
