package preflight

import (
	"testing"

	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// TestNeverFirst: which limits of a category have no effect next to the global one.
func TestNeverFirst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		category, global string
		want             bool
	}{
		{"10/30m", "100/30m", false}, {"100/30m", "100/30m", true}, {"200/30m", "100/30m", true}, {"100/10m", "100/30m", true},
		{"100/1h", "100/30m", false}, {"200/30m+1/5s", "100/30m", false}, {"10/1m", "100/30m+5/1m", true},
	} {
		category, err := ratelimit.ParseLimit(test.category)
		testkit.Check(t, err)
		global, err := ratelimit.ParseLimit(test.global)
		testkit.Check(t, err)
		if got := neverFirst(category, global); got != test.want {
			t.Errorf("%s beside %s: %t, expected %t", test.category, test.global, got, test.want)
		}
	}
}
