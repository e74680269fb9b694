package main

import (
	"testing"

	"notifier/internal/status/stats"
)

func TestFollowers(t *testing.T) {
	t.Parallel()
	follows := stats.Replica{ID: "a", Heartbeat: stats.Heartbeat{Steering: 7}}
	behind := stats.Replica{ID: "b", Heartbeat: stats.Heartbeat{Steering: 6}}
	silent := stats.Replica{ID: "c", Silent: true}
	for want, replicas := range map[string][]stats.Replica{
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
