package preflight

import "testing"

// TestCovers compares covers with what the server would do.
func TestCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		wide, narrow string
		want         bool
	}{
		{"notify.>", "notify.>", true}, {"notify.>", "notify.*", true}, {"notify.>", "notify.a.b", true}, {">", "notify.>", true},
		{"notify.*", "notify.>", false}, {"notify.*", "notify.a", true}, {"notify.a", "notify.*", false}, {"notify.>", "notify", false},
		{"*.alerts", "team.alerts", true}, {"*.alerts", "*.alerts", true}, {"team.alerts", "*.alerts", false}, {"a.b", "a.b.c", false}, {"a.b.c", "a.b", false},
	} {
		if got := covers(test.wide, test.narrow); got != test.want {
			t.Errorf("covers(%q, %q) is %t, expected %t", test.wide, test.narrow, got, test.want)
		}
	}
}
