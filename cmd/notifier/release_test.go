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
	want := version + " ("
	if strings.HasSuffix(version, "-dev") {
		want = "Unreleased"
	}
	if !strings.HasPrefix(sections[0], want) {
		t.Errorf("CHANGELOG.md begins with %q, expected %q, as the version is %s", sections[0], want, version)
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
