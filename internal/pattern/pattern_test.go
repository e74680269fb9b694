package pattern_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/pattern"
)

func TestCheckNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"errors": "", "errors.db": "", "*": "", ">": "", "*.>": "", "team-a.>": "", "team-a.*.db": "", "größe": "", "{a}": "", "$x": "",
		strings.Repeat("x", 128): "", strings.Repeat("x.", 63) + "*.": "has an empty token, expected text between all dots",
		strings.Repeat("ä", 65): "has 130 bytes, expected at most 128: no longer category is ever sent",
		"":                      "is empty, expected a category such as errors, or a pattern such as team-a.>",
		".":                     "has an empty token, expected text between all dots",
		".a":                    "has an empty token, expected text between all dots",
		"a.":                    "has an empty token, expected text between all dots",
		"a..b":                  "has an empty token, expected text between all dots",
		">.a":                   "has > before its end, expected > as the last token only",
		"a.>.>":                 "has > before its end, expected > as the last token only",
		"a*":                    `has a wildcard inside of the token "a*", expected * or > as a whole token`,
		"a.b>":                  `has a wildcard inside of the token "b>", expected * or > as a whole token`,
		"**":                    `has a wildcard inside of the token "**", expected * or > as a whole token`,
		"a b":                   "has white space or a control character, expected none: no category has one",
		"a\u00a0b":              "has white space or a control character, expected none: no category has one",
		"a\x00":                 "has white space or a control character, expected none: no category has one",
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

// TestTheMostSpecificPatternCounts: token by token from the left, a literal before "*" before ">".
func TestTheMostSpecificPatternCounts(t *testing.T) {
	all := []string{
		"errors", "team-a", "team-a.>", "team-a.*", "team-a.job1", "team-a.*.db", "team-a.job1.>", "team-a.job1.*", "*.job1", "*.job2.db", "*.*.db", "*.>",
	}
	for _, test := range []struct {
		category, want string
		without        []string
	}{
		{"errors", "errors", nil},
		{"errorsx", "", nil},
		{"errorsx", ">", []string{"+>"}},
		{"errorsx", "*", []string{"+>", "+*"}},
		{"team-a", "team-a", nil},
		{"team-a", "", []string{"team-a"}}, // "team-a.>" needs another token
		{"team-a.job1", "team-a.job1", nil},
		{"team-a.job1", "team-a.*", []string{"team-a.job1"}},
		// before "*.job1": the first token decides
		{"team-a.job1", "team-a.>", []string{"team-a.job1", "team-a.*"}},
		{"team-a.job1", "*.job1", []string{"team-a.job1", "team-a.*", "team-a.>"}},
		{"team-a.job1", "*.>", []string{"team-a.job1", "team-a.*", "team-a.>", "*.job1"}},
		{"team-a.job1.db", "team-a.job1.*", nil},
		{"team-a.job1.db", "team-a.job1.>", []string{"team-a.job1.*"}},
		{"team-a.job1.db", "team-a.*.db", []string{"team-a.job1.*", "team-a.job1.>"}},
		{"team-b.job2.db", "*.job2.db", nil},
		{"team-b.job3.db", "*.*.db", nil},
		{"team-b.job3.db.x", "*.>", nil},
		{"team-a.x.y.z", "team-a.>", nil},
		{"", "", []string{"+>", "+*"}},
	} {
		values := map[string]string{}
		for _, text := range all {
			if !slices.Contains(test.without, text) {
				values[text] = "value of " + text
			}
		}
		for _, text := range test.without {
			if more, found := strings.CutPrefix(text, "+"); found {
				values[more] = "value of " + more
			}
		}
		value, got, found := pattern.MustTable(values).Find(test.category)
		if got != test.want || found != (test.want != "") || found && value != "value of "+test.want {
			t.Errorf("%q without %v: %q of %q (%t), expected %q", test.category, test.without, value, got, found, test.want)
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
	for stop := range 6 { // a loop may end anywhere
		n := 0
		for range table.All() {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Errorf("%d of %d patterns before the loop ended", n, stop+1)
		}
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
