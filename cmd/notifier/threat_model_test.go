package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestTheThreatModelNamesTestsThatExist: each row of the last table of SECURITY.md names a test or more, as
// package.TestName, and each of them exists in a package of that name ("main" is cmd/notifier).
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	existing := testsByPackage(t)
	_, table, found := strings.Cut(read(t, "SECURITY.md"), "| who | what they could do | what stops it | tests |\n")
	if !found {
		t.Fatal("SECURITY.md has no table of threats")
	}
	named := regexp.MustCompile(`([a-z0-9]+)\.((?:Test|Fuzz)\w+)`)
	rows := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), " | ")
		if len(cells) < 4 || strings.HasPrefix(row, "| ---") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in: %s", row)
		}
		for _, test := range tests {
			if !existing[test[1]+"."+test[2]] {
				t.Errorf("there is no test %s: %s", test[0], row)
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows, expected the table of threats", rows)
	}
}

// testsByPackage are all tests and fuzz targets of the repository, as package.TestName.
func testsByPackage(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
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
