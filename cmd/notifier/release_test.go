package main

import (
	"regexp"
	"strings"
	"testing"

	"notifier/internal/buildinfo"
)

// TestOneVersion: the file VERSION, the changelog, the image and compose name the same version.
// CONTRIBUTING.md says how it changes.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	version := buildinfo.Version()
	var sections []string
	for _, found := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1) {
		sections = append(sections, found[1])
	}
	if len(sections) == 0 {
		t.Fatal("CHANGELOG.md has no section")
	}
	next, development := strings.CutSuffix(version, "-dev")
	dated := regexp.MustCompile(`^(v\d+\.\d+\.\d+) \(20\d\d-\d\d-\d\d\)$`)
	switch {
	case development && sections[0] != "Unreleased":
		t.Errorf("CHANGELOG.md begins with %q, expected Unreleased, as the version is %s", sections[0], version)
	case !development && !strings.HasPrefix(sections[0], version+" ("):
		t.Errorf("CHANGELOG.md begins with %q, expected %s and the date", sections[0], version)
	}
	for i, section := range sections {
		found := dated.FindStringSubmatch(section)
		if development && i == 0 {
			continue
		}
		if found == nil || development && found[1] == next {
			t.Errorf("section %q of CHANGELOG.md, expected a release before %s as in \"v0.1.0 (2026-11-23)\"", section, version)
		}
	}
	for file, line := range map[string]string{
		"Dockerfile":         "\nARG VERSION=" + version + "\n",
		"docker-compose.yml": "VERSION: ${NOTIFIER_VERSION:-" + version + "}\n",
	} {
		if !strings.Contains(read(t, file), line) {
			t.Errorf("%s does not have %q", file, strings.TrimSpace(line))
		}
	}
}
