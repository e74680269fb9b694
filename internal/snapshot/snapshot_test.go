package snapshot_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/snapshot"
)

func TestUsedShareIsOfTheNearestBound(t *testing.T) {
	for name, test := range map[string]struct {
		stream snapshot.Stream
		share  float64
		bound  string
	}{
		"no bound":       {snapshot.Stream{Messages: 7, Bytes: 70}, 0, ""},
		"bytes":          {snapshot.Stream{Messages: 7, Bytes: 70, MaxBytes: 100, MaxMessages: 1000}, .7, "bytes"},
		"messages":       {snapshot.Stream{Messages: 9, Bytes: 70, MaxBytes: 1000, MaxMessages: 10}, .9, "messages"},
		"an empty one":   {snapshot.Stream{MaxMessages: 10}, 0, "messages"},
		"an unknown one": {snapshot.Stream{Unknown: "no reply"}, 0, ""},
	} {
		if share, bound := test.stream.Used(); share != test.share || bound != test.bound {
			t.Errorf("%s: %g of %q, expected %g of %q", name, share, bound, test.share, test.bound)
		}
	}
}

// TestTimesByAnotherClock: the clock of the worker is three hours ahead.
func TestTimesByAnotherClock(t *testing.T) {
	now := time.Date(2026, 11, 20, 9, 10, 38, 0, time.UTC)
	taken := func(clock time.Time) snapshot.Snapshot {
		return snapshot.Snapshot{
			Time: clock, Started: clock.Add(-time.Hour), LastSent: clock.Add(-time.Minute),
			Waits:    []snapshot.Wait{{For: "slack", Since: clock.Add(-4 * time.Minute)}, {For: "log"}},
			Failing:  []snapshot.Failing{{EventID: "e-1", Next: clock.Add(30 * time.Second)}},
			Streams:  []snapshot.Stream{{Name: "NOTIFY", Seen: clock.Add(-20 * time.Second)}},
			Channels: []snapshot.Channel{{Name: "#alerts", Oldest: now.Add(-time.Minute)}},
		}
	}
	ahead := taken(now.Add(3 * time.Hour))
	if diff := cmp.Diff(taken(now), ahead.At(now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(taken(now.Add(3*time.Hour)), ahead); diff != "" {
		t.Errorf("At changed the snapshot (-want +got):\n%s", diff)
	}
	lying := snapshot.Snapshot{Time: now.AddDate(-100, 0, 0), Started: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	if at := lying.At(now).Started; !at.IsZero() {
		t.Errorf("a time in the year 9999 became %s", at)
	}
}
