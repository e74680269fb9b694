package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks: links from the documents to files and headings of the repository resolve.
func TestLinks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	kit.Check(t, err)
	top, err := filepath.Glob("../../*.md")
	kit.Check(t, err)
	links := 0
	for _, file := range append(files, top...) {
		name, err := filepath.Rel("../..", file)
		kit.Check(t, err)
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, name), ""), -1) {
			links++
			if fault := broken(t, filepath.ToSlash(name), found[1]); fault != "" {
				t.Errorf("%s: %s: %s", name, found[1], fault)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links are found", links)
	}
}

// broken returns the problem with a link, or "" if it has no problem or leads to another site.
func broken(t *testing.T, document, target string) (fault string) {
	t.Helper()
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	to, anchor, _ := strings.Cut(target, "#")
	if to == "" {
		to = document
	} else {
		to = path.Join(path.Dir(document), to)
	}
	if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
		return "there is no such file"
	}
	if anchor == "" || !strings.HasSuffix(to, ".md") {
		return ""
	}
	if !slices.Contains(anchors(read(t, to)), anchor) {
		return "there is no such heading"
	}
	return ""
}

// anchors returns the heading anchors that GitHub generates for a document.
func anchors(markdown string) (list []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(markdown, ""), -1) {
		text := strings.ToLower(strings.TrimSpace(found[1]))
		text = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(text, "")
		list = append(list, strings.ReplaceAll(text, " ", "-"))
	}
	return list
}
