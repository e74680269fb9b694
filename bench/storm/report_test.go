package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"notifier/bench/internal/rig"
	"notifier/test/kit"
)

// The table has medians and ranges; the targets have ratios of the same round.
func TestTableAndTargets(t *testing.T) {
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
		"| events per second | 2000 (2000 to 2000) | 2000 (1000 to 3000) |",
		"| processor time per event, µs | 1.0 (1.0 to 1.0) | 2.0 (1.0 to 3.0) |",
		"| of Redis, µs | 0.0 (0.0 to 0.0) | 1.0 (1.0 to 1.0) |")
	wantLines(t, targetTable(m.targets()),
		"| processor time per event of a storm, times that of a consumer that only acknowledges |"+
			" 2.00 (1.00 to 3.00) | at most 2.2 | met |",
		"| events per second of that storm, times those of that consumer | 1.00 (0.50 to 1.50) | at least 0.88 | met |",
		"| the worker's peak memory in that storm, MiB | 80 (80 to 80) | at most 64 | missed |")
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
