package event_test

import (
	"testing"

	"notifier/internal/event"
)

// TestCovers compares Covers with what the server would do.
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
		if got := event.Covers(test.wide, test.narrow); got != test.want {
			t.Errorf("Covers(%q, %q) is %t, expected %t", test.wide, test.narrow, got, test.want)
		}
	}
}

func TestCommon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b, want string
		overlap    bool
	}{
		{"notify.>", "notify.*", "notify.*", true}, {"a.*", "*.b", "a.b", true}, {">", "a.b", "a.b", true}, {"a.>", "*.b.>", "a.b.>", true},
		{"a.b", "a.b.c", "", false}, {"a.>", "a", "", false}, {"a.x", "b.x", "", false}, {"*.*", "a.>", "a.*", true},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			got, overlap := event.Common(pair[0], pair[1])
			if overlap != test.overlap || overlap && got != test.want {
				t.Errorf("Common(%q, %q) is %q, %t, expected %q, %t", pair[0], pair[1], got, overlap, test.want, test.overlap)
			}
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"notify-dead.>", "notify.>", false},
		{"notify.dead.>", "notify.>", true},
		{"notify.>", "notify", false},
		{"notify.>", "notify.*", true},
		{"a.>", "a.b.c", true},
		{"a.*", "a.b.c", false},
		{"a.*.c", "a.b.*", true},
		{"*.*", "dead.>", true},
		{"*", "dead.>", false},
		{">", "dead.>", true},
	} {
		if event.Overlap(test.a, test.b) != test.want || event.Overlap(test.b, test.a) != test.want {
			t.Errorf("%s and %s: expected %t", test.a, test.b, test.want)
		}
	}
}
