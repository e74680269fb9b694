package markup

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
)

// list is each type with its fields, in alphabetical order. A type that occurs in several places has the
// fields of all.
func list() map[string][]string {
	all := map[string][]string{}
	for _, known := range []types{blockTypes, richParts, richPieces, cells, {
		"button": button, "overflow": overflow, "image": imageElement, "plain_text": plainText(1), "mrkdwn": mrkdwn(1),
	}} {
		for kind, o := range known {
			all[kind] = slices.AppendSeq(all[kind], maps.Keys(o.fields))
		}
	}
	for kind, names := range all {
		slices.Sort(names)
		all[kind] = slices.Compact(names)
	}
	return all
}

// TestTheListIsDocumented: the table of docs/publishing.md has each type with its fields, and no other.
func TestTheListIsDocumented(t *testing.T) {
	content, err := os.ReadFile("../../../docs/publishing.md")
	kit.Check(t, err)
	_, section, found := strings.Cut(string(content), "\n### Blocks\n")
	if !found {
		t.Fatal("docs/publishing.md has no section about blocks")
	}
	section, _, _ = strings.Cut(section, "\n### ")
	code := regexp.MustCompile("`([a-z_]+)`")
	documented := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		var names []string
		for _, name := range code.FindAllStringSubmatch(cells[2], -1) {
			names = append(names, name[1])
		}
		slices.Sort(names)
		for _, kind := range code.FindAllStringSubmatch(cells[1], -1) {
			documented[kind[1]] = names
		}
	}
	if diff := cmp.Diff(list(), documented); diff != "" {
		t.Errorf("(-list +docs):\n%s", diff)
	}
}
