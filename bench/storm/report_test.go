package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/bench/internal/rig"
	"notifier/test/kit"
)

// The table has medians and ranges; the targets have ratios of the same round.
func TestTable(t *testing.T) {
	m := rounds{form: formJSON, events: 1000}
	for _, cpu := range []time.Duration{3, 1, 2} {
		m.all = append(m.all, round{
			bare: drained{perSecond: 2000, cpu: time.Millisecond},
			worker: drained{
				perSecond: 1000 * float64(cpu), cpu: cpu * time.Millisecond, redis: time.Millisecond, peak: 80 << 20,
			},
		})
	}
	wantLines(t, m.table(),
		"1000 events, JSON with ids, median of 3 rounds and range:",
		"| events per second | 2000 (2000 to 2000) | 2000 (1000 to 3000) |",
		"| processor time per event, µs | 1.0 (1.0 to 1.0) | 2.0 (1.0 to 3.0) |",
		"| of Redis, µs | 0.0 (0.0 to 0.0) | 1.0 (1.0 to 1.0) |")
	wantLines(t, targetTable(m.targets()),
		"| processor time per event of a storm, times that of a consumer that only acknowledges |"+
			" 2.00 (1.00 to 3.00) | at most 2.2 | met |",
		"| events per second of that storm, times those of that consumer | 1.00 (0.50 to 1.50) | at least 0.88 | met |",
		"| the worker's peak memory in that storm, MiB | 80 (80 to 80) | at most 64 | missed |")
	m.form = formPlain
	wantLines(t, targetTable(m.targets()),
		"| processor time per event of a storm of plain text, times that of that consumer | 2.00 (1.00 to 3.00) | at most 1.9 | missed |")
	want := "One worker drains 2,000 events a second, plain text," +
		" at 2.0 times the processor time of a consumer that only acknowledges."
	if got := m.sentence(); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

// Several workers, an idle one and a single event have targets, too.
func TestTargets(t *testing.T) {
	m := scaleRounds{events: 1000, all: map[formation][]together{
		alone: {{workers: 10, idle: 2 * time.Millisecond, calls: 1}},
		three: {{workers: 14, calls: 1}},
	}}
	l := latencies{loop: []float64{1, 2, 4}, worker: []float64{2, 3, 4}}
	wantLines(t, targetTable(append(m.targets(), l.targets()...)),
		"| processor time per event of 3 workers, times that of one | 1.40 | at most 1.3 | missed |",
		"| processor time of an idle worker, ms per second | 2.0 | at most 3 | met |",
		"| a single event's way to Slack, times that of a loop that makes one HTTP request | 1.50 | at most 1.5 | met |")
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is not in\n%s", line, text)
		}
	}
}

// The documents have the places that are written, and nothing else of them changes.
func TestDocumentsHaveThePlaces(t *testing.T) {
	for path, places := range map[string][]string{
		benchmarks: {"targets", "storm", "scale", "latency", "peers"}, "README.md": {"storm"},
	} {
		content, err := os.ReadFile("../../" + path)
		kit.Check(t, err)
		for _, place := range places {
			replaced, err := rig.Between(string(content), place, "x")
			kit.Check(t, err)
			if again, err := rig.Between(replaced, place, "x"); err != nil || again != replaced {
				t.Errorf("%s: %s written twice is different, %v", path, place, err)
			}
		}
	}
	if _, err := rig.Between("<!-- storm -->", "storm", "x"); err == nil {
		t.Error("a place without an end is written")
	}
}

// The table of targets in the document has the rows that are written there.
func TestDocumentHasTheTargets(t *testing.T) {
	content, err := os.ReadFile("../../" + benchmarks)
	kit.Check(t, err)
	_, table, _ := strings.Cut(string(content), "<!-- targets -->")
	table, _, _ = strings.Cut(table, "<!-- /targets -->")
	one := []round{{bare: drained{cpu: 1, perSecond: 1}, worker: drained{cpu: 1, perSecond: 1}}}
	scale := scaleRounds{all: map[formation][]together{alone: {{workers: 1}}, three: {{workers: 1}}}}
	l := latencies{loop: []float64{1}, worker: []float64{1}}
	for _, row := range slices.Concat(rounds{form: formJSON, all: one}.targets(),
		rounds{form: formPlain, all: one}.targets(), scale.targets(), l.targets()) {
		if !strings.Contains(table, "| "+row.name+" | ") || !strings.Contains(table, " | "+row.bound+" | ") {
			t.Errorf("%s has no row %q with %q", benchmarks, row.name, row.bound)
		}
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
