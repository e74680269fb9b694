package main

import (
	"os"
	"strings"
	"testing"

	"notifier/bench/internal/rig"
	"notifier/test/kit"
)

// Each document has the markers of its generated parts, and writing a part again changes nothing.
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
