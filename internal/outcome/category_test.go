package outcome_test

import (
	"testing"

	"notifier/internal/outcome"
)

func TestNoCategoryHasOurName(t *testing.T) {
	for category, want := range map[string]string{
		"other": "other", "_others": "_others", "a_other": "a_other", "": "", "_": "_",
		"_other": "__other", "__other": "___other",
	} {
		name := outcome.CategoryName(category)
		if name != want || name == outcome.OtherCategories {
			t.Errorf("%q is called %q, expected %q", category, name, want)
		}
		if back := outcome.CategoryOf(name); back != category {
			t.Errorf("%q is the name of %q, expected %q", name, back, category)
		}
	}
	if got := outcome.CategoryOf(outcome.OtherCategories); got != outcome.OtherCategories {
		t.Errorf("%q becomes %q", outcome.OtherCategories, got)
	}
}
