package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/settings"
)

// TestReadmeSettings compares the table of settings in docs/configuration.md with the code, both ways. A row
// may name several variables with commas between; then its default cell is empty, or has theirs in the same
// order.
func TestReadmeSettings(t *testing.T) {
	t.Parallel()
	const place = "docs/configuration.md"
	want := map[string]string{}
	for _, s := range settings.Variables() {
		want[s.Name] = s.Default
	}
	if diff := cmp.Diff(want, tableOfSettings(t, read(t, place))); diff != "" {
		t.Errorf("names and defaults (-code +%s):\n%s", place, diff)
	}
}

// read returns the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tableOfSettings reads the rows with only variable names in the first cell.
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
