package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

const threatsFile = "cmd/notifier/testdata/threats.txt"

// threatsOf returns the threats in the table of docs/security.md: its second column.
func threatsOf(t *testing.T) []string {
	t.Helper()
	_, table, found := strings.Cut(read(t, "docs/security.md"), "| who | threat | prevented by |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/security.md has no table of threats")
	}
	var threats []string
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			break
		}
		threats = append(threats, strings.TrimSpace(cells[2]))
	}
	return threats
}

// TestEveryThreatIsTested: testdata/threats.txt names tests that exist for each threat, as package.Test
// ("main" is cmd/notifier), and covers each row of the table in docs/security.md.
func TestEveryThreatIsTested(t *testing.T) {
	t.Parallel()
	existing := testsByPackage(t)
	var held []string
	for _, section := range strings.Split(read(t, threatsFile), "\n## ")[1:] {
		lines := strings.Split(strings.TrimSpace(section), "\n")
		held = append(held, lines[0])
		if len(lines) < 2 {
			t.Errorf("%s names no test of %q", threatsFile, lines[0])
		}
		for _, test := range lines[1:] {
			if !existing[test] {
				t.Errorf("%s: %q: there is no test %s", threatsFile, lines[0], test)
			}
		}
	}
	threats := threatsOf(t)
	for _, threat := range threats {
		if !slices.Contains(held, threat) {
			t.Errorf("docs/security.md: %q is not in %s", threat, threatsFile)
		}
	}
	if len(threats) < 15 || len(held) < 30 {
		t.Errorf("%d rows of docs/security.md and %d threats in %s, expected more", len(threats), len(held), threatsFile)
	}
}

// testsByPackage are all tests, fuzz targets and benchmarks of the repository, as package.TestName.
func testsByPackage(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	tests := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		kit.Check(t, err)
		name := filepath.Base(filepath.Dir(path))
		if strings.HasSuffix(filepath.ToSlash(filepath.Dir(path)), "cmd/notifier") {
			name = "main"
		}
		for _, found := range function.FindAllStringSubmatch(string(content), -1) {
			tests[name+"."+found[1]] = true
		}
		return nil
	})
	kit.Check(t, err)
	return tests
}
