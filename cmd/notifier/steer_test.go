package main

import (
	"testing"

	"notifier/internal/snapshot"
	"notifier/internal/status/report"
)

func TestFollowers(t *testing.T) {
	t.Parallel()
	follows := report.Replica{Snapshot: snapshot.Snapshot{ID: "a", Steering: 7}}
	behind := report.Replica{Snapshot: snapshot.Snapshot{ID: "b", Steering: 6}}
	silent := report.Replica{Snapshot: snapshot.Snapshot{ID: "c"}, Silent: true}
	for want, replicas := range map[string][]report.Replica{
		"No replica is running; each follows when it starts.": {silent},
		"1 replica follows.":                  {follows, silent},
		"1 of 2 replicas follow; not yet: b.": {follows, silent, behind},
	} {
		text, all := followers(replicas, 7)
		if text != want || all != (len(replicas) < 3) {
			t.Errorf("%q, all %t; expected %q", text, all, want)
		}
	}
}
