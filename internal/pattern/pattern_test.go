package pattern_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/pattern"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"errors.db": "", "*": "", "team-a.>": "", "größe": "", "$x": "",
		strings.Repeat("x", 128): "", strings.Repeat("x.", 63) + "*.": "has an empty token, expected text between all dots",
		strings.Repeat("ä", 65): "has 130 bytes, expected at most 128: no longer category is ever sent",
		"":                      "is empty, expected a category such as errors, or a pattern such as team-a.>",
		"a..b":                  "has an empty token, expected text between all dots",
		">.a":                   "has > before its end, expected > as the last token only",
		"a*":                    `has a wildcard inside of the token "a*", expected * or > as a whole token`,
		"a.b>":                  `has a wildcard inside of the token "b>", expected * or > as a whole token`,
		"a b":                   "has a space or a control character, expected none: no category has one",
		"a\x00":                 "has a space or a control character, expected none: no category has one",
		"a\xff":                 "is not valid UTF-8, expected text that can be part of a subject",
	} {
		got := ""
		if err := pattern.Check(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
		if _, err := pattern.NewTable(map[string]int{text: 1}); (err == nil) != (want == "") {
			t.Errorf("a table of %q: %v", text, err)
		}
	}
}

// TestATable checks the content of a table, its order, and that it equals NewTable's argument.
func TestATable(t *testing.T) {
	var none pattern.Table[int]
	if _, _, found := none.Find("errors"); found || none.Len() != 0 || len(maps.Collect(none.All())) != 0 {
		t.Error("the zero Table is not empty")
	}
	values := map[string]int{">": 1, "b": 2, "a": 3, "*.x": 4, "a.>": 5, "a.*": 6}
	table := pattern.MustTable(values)
	var order []string
	for text, value := range table.All() {
		order = append(order, text)
		if values[text] != value {
			t.Errorf("%s: %d", text, value)
		}
	}
	if difference := cmp.Diff([]string{"a", "b", "a.*", "a.>", "*.x", ">"}, order); difference != "" || table.Len() != len(order) {
		t.Errorf("%d patterns (-want +got):\n%s", table.Len(), difference)
	}
	for _, last := range []string{"a", "*.x"} { // a loop may end anywhere
		for text := range table.All() {
			if text == last {
				break
			}
		}
	}
	if _, by, found := table.Find(""); found {
		t.Errorf("%q matches no category at all", by)
	}
	delete(values, "a")
	if _, _, found := table.Find("a"); !found {
		t.Error("a table changes with the map that it was made from")
	}
	if _, err := pattern.NewTable(map[string]int{"b..": 1, "a..": 1}); err == nil || !strings.HasPrefix(err.Error(), `"a.." has an empty token`) {
		t.Errorf("%v, expected the first wrong pattern", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("MustTable takes a wrong pattern")
		}
	}()
	pattern.MustTable(map[string]int{"a..b": 1})
}
