package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"notifier/internal/settings"
	"notifier/internal/testkit"

	"github.com/google/go-cmp/cmp"
)

// TestReadmeSettings holds the README's table of settings against the code, both ways. A row may name several
// variables with commas between; then its default cell is empty, or has theirs in the same order.
func TestReadmeSettings(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../README.md")
	testkit.Check(t, err)
	want := map[string]string{}
	for _, s := range settings.Variables() {
		want[s.Name] = s.Default
	}
	if diff := cmp.Diff(want, tableOfSettings(t, string(content))); diff != "" {
		t.Errorf("names and defaults (-code +README):\n%s", diff)
	}
	for _, command := range []string{"go run ./cmd/notifier demo", "go test ./..."} {
		if !strings.Contains(string(content), command) {
			t.Errorf("the README does not state %q", command)
		}
	}
}

// tableOfSettings reads the rows whose first cell names variables and nothing else.
func tableOfSettings(t *testing.T, markdown string) map[string]string {
	t.Helper()
	names := regexp.MustCompile("^`[A-Z][A-Z_]*`((, *| or )`[A-Z][A-Z_]*`)*$")
	quoted := regexp.MustCompile("`([^`]*)`")
	settings := map[string]string{}
	for row := range strings.Lines(markdown) {
		// A bar inside a cell would be written \|.
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(row), `\|`, "\x00"), "|")
		if len(cells) < 5 || !names.MatchString(strings.TrimSpace(cells[1])) {
			continue
		}
		variables, presets := quoted.FindAllStringSubmatch(cells[1], -1), quoted.FindAllStringSubmatch(cells[2], -1)
		if len(presets) != 0 && len(presets) != len(variables) {
			t.Errorf("%s: %d defaults, expected %d or none", strings.TrimSpace(cells[1]), len(presets), len(variables))
			continue
		}
		for i, variable := range variables {
			if _, twice := settings[variable[1]]; twice {
				t.Errorf("%s has two rows", variable[1])
			}
			settings[variable[1]] = ""
			if len(presets) > 0 {
				settings[variable[1]] = presets[i][1]
			}
		}
	}
	return settings
}

// TestTableOfSettings: the test above sees what differs.
func TestTableOfSettings(t *testing.T) {
	t.Parallel()
	got := tableOfSettings(t, "| variable | default | meaning |\n| --- | --- | --- |\n"+
		"| `A_URL` | `a://b` | with `code` and a \\| bar |\n"+
		"| `B`, `B_TWO` | `1`, `2` | two |\n"+
		"| `C_ONE` or `C_TWO` | | one of them |\n"+
		"| `sent` | | no variable |\n")
	want := map[string]string{"A_URL": "a://b", "C_ONE": "", "C_TWO": "", "B_TWO": "2", "B": "1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
