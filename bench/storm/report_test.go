package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"notifier/bench/internal/rig"
	"notifier/test/kit"
)

// The tables have medians, ranges and ratios of the same round.
func TestTable(t *testing.T) {
	m := rounds{form: formJSON, events: 1000}
	for _, cpu := range []time.Duration{3, 1, 2} {
		m.all = append(m.all, round{
			bare:   drained{perSecond: 2000, cpu: time.Millisecond},
			worker: drained{perSecond: 1000 * float64(cpu), cpu: cpu * time.Millisecond, redis: time.Millisecond, peak: 40 << 20},
		})
	}
	for _, want := range []string{
		"1000 events, JSON with ids, median of 3 rounds and range:",
		"| events per second | 2000 (2000 to 2000) | 2000 (1000 to 3000) | 1.00 (0.50 to 1.50); at least 0.88 is asked |",
		"| processor time per event, µs | 1.0 (1.0 to 1.0) | 2.0 (1.0 to 3.0) | 2.00 (1.00 to 3.00); at most 2.2 is asked |",
		"| of Redis, µs | 0.0 (0.0 to 0.0) | 1.0 (1.0 to 1.0) |  |",
		"| peak memory, MiB | 0 (0 to 0) | 40 (40 to 40) | below 64 is asked |",
	} {
		if !strings.Contains(m.table(), want) {
			t.Errorf("%s is not in\n%s", want, m.table())
		}
	}
	if got, want := m.sentence(), "One worker drains 2,000 events a second, JSON with ids, at 2.0 times the processor time of a consumer that only acknowledges."; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// The documents have the places that are written, and nothing else of them changes.
func TestDocumentsHaveThePlaces(t *testing.T) {
	for _, path := range []string{"../../docs/benchmarks.md", "../../README.md"} {
		content, err := os.ReadFile(path)
		kit.Check(t, err)
		replaced, err := rig.Between(string(content), "storm", "x")
		kit.Check(t, err)
		if again, err := rig.Between(replaced, "storm", "x"); err != nil || again != replaced {
			t.Errorf("%s: written twice it is different, %v", path, err)
		}
	}
	if _, err := rig.Between("<!-- storm -->", "storm", "x"); err == nil {
		t.Error("a place without an end is written")
	}
}

// Both forms have the same text, and ids are distinct.
func TestPayload(t *testing.T) {
	if got := string(formPlain.payload(1)); len(got) != textBytes {
		t.Errorf("%q has %d bytes", got, len(got))
	}
	if got := string(formJSON.payload(7)); !strings.HasPrefix(got, `{"id":"storm-7","text":"disk full on db-1: xx`) || len(got) != textBytes+len(`{"id":"storm-7","text":""}`) {
		t.Errorf("%q", got)
	}
}

func TestARegressionIsWarnedOf(t *testing.T) {
	recorded := ratios{CPU: 2, Script: 4}
	for _, test := range []struct {
		now  ratios
		want int // warnings
	}{
		{ratios{CPU: 2, Script: 4}, 0}, {ratios{CPU: 2.5, Script: 5}, 0}, {ratios{CPU: 1, Script: 1}, 0},
		{ratios{CPU: 2.51, Script: 4}, 1}, {ratios{CPU: 3, Script: 5.1}, 2},
	} {
		text := test.now.besides(recorded)
		if got := strings.Count(text, "WARNING: "); got != test.want || strings.Count(text, "\n") != 2 {
			t.Errorf("%+v beside %+v: %d warnings, expected %d\n%s", test.now, recorded, got, test.want, text)
		}
	}
}

// What is compared with is there, and makes sense.
func TestRatiosAreRecorded(t *testing.T) {
	var recorded ratios
	if err := json.Unmarshal(recordedRatios, &recorded); err != nil || recorded.CPU < 1 || recorded.Script <= 0 {
		t.Errorf("%s has %+v, %v", recordedPath, recorded, err)
	}
}
