package app

import (
	"slices"
	"testing"
	"time"

	"notifier/internal/stats"
)

func TestPeersThatAreAlive(t *testing.T) {
	begun := time.Now()
	second := func(n float64) time.Time { return begun.Add(time.Duration(n * float64(time.Second))) }
	type seen map[string]float64 // replica -> the second of its heartbeat
	for name, test := range map[string]struct {
		flushes []float64 // seconds
		peers   []seen    // what each brings back
		want    []string
	}{
		"none yet":                 {nil, nil, nil},
		"all":                      {[]float64{10}, []seen{{"a": 10, "b": 9, "c": 7.5}}, []string{"a", "b", "c"}},
		"one is dead":              {[]float64{10}, []seen{{"a": 10, "b": 7}}, []string{"a"}},
		"one has died":             {[]float64{10, 11, 12, 13}, []seen{{"a": 10, "b": 10}, {"a": 11, "b": 10}, {"a": 12, "b": 10}, {"a": 13, "b": 10}}, []string{"a"}},
		"Redis came back empty":    {[]float64{10, 14}, []seen{{"a": 10, "b": 9, "c": 10}, {"a": 14}}, []string{"a", "b", "c"}},
		"and one does not return":  {[]float64{10, 14, 15, 16}, []seen{{"a": 10, "b": 9, "c": 10}, {"a": 14}, {"a": 15, "b": 15}, {"a": 16, "b": 16}}, []string{"a", "b"}},
		"its clock was set back":   {[]float64{10, 5}, []seen{{"a": 10, "b": 9}, {"a": 5, "b": 9}}, []string{"a", "b"}},
		"its clock was set ahead":  {[]float64{10, 99}, []seen{{"a": 10, "b": 9}, {"a": 99, "b": 9}}, []string{"a", "b"}},
		"a heartbeat that is late": {[]float64{10, 11}, []seen{{"a": 10, "b": 10}, {"a": 11, "b": 9.5}}, []string{"a", "b"}},
	} {
		var p peers
		for i, at := range test.flushes {
			flushed := stats.Flushed{Now: second(at)}
			for replica, last := range test.peers[i] {
				flushed.Peers = append(flushed.Peers, stats.Peer{Replica: replica, Seen: second(last)})
			}
			p.note(flushed)
		}
		if got := slices.Sorted(slices.Values(p.alive())); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, expected %v", name, got, test.want)
		}
	}
}

// Each of several losses in a row finds those who answered in the one before.
func TestPeersThatTookPartInAHealing(t *testing.T) {
	var p peers
	now := time.Now()
	p.note(stats.Flushed{Now: now, Peers: []stats.Peer{{Replica: "a", Seen: now}, {Replica: "b", Seen: now}, {Replica: "c", Seen: now}}})
	for range 10 {
		p.healed([]string{"c"})
		now = now.Add(time.Second)
		p.note(stats.Flushed{Now: now, Peers: []stats.Peer{{Replica: "a", Seen: now}}})
	}
	if got, want := slices.Sorted(slices.Values(p.alive())), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
