package event_test

import (
	"strings"
	"testing"

	"notifier/internal/event"
)

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
		{"a.b", "a.b.c", "", false}, {"a.*", "a.b.c", "", false}, {"a.*.c", "a.b.*", "a.b.c", true}, {"notify-dead.>", "notify.>", "", false},
		{"a.>", "a", "", false}, {"a.x", "b.x", "", false}, {"*.*", "a.>", "a.*", true},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			got, overlap := event.Common(pair[0], pair[1])
			if overlap != test.overlap || overlap && got != test.want {
				t.Errorf("Common(%q, %q) is %q, %t, expected %q, %t", pair[0], pair[1], got, overlap, test.want, test.overlap)
			}
		}
	}
}

// FuzzSubjects checks Covers and Common against one subject, with the matcher of FuzzPattern.
func FuzzSubjects(f *testing.F) {
	f.Add("notify.>", "notify.*.db", "notify.errors.db")
	f.Add("*.b", "a.>", "a.b")
	f.Add("a.*", "*.b.>", "a.b.c")
	f.Add("a", "a", "a")
	f.Fuzz(func(t *testing.T, a, b, subject string) {
		if !isSubscription(a) || !isSubscription(b) || !isSubscription(subject) || strings.ContainsAny(subject, "*>") {
			t.Skip("no subscriptions and a subject")
		}
		takes := func(subscription string) bool {
			_, ok := referenceCategory(strings.Split(subscription, "."), strings.Split(subject, "."))
			return ok
		}
		if event.Covers(a, b) && takes(b) && !takes(a) {
			t.Errorf("%q covers %q and does not take %q", a, b, subject)
		}
		common, overlap := event.Common(a, b)
		if both := takes(a) && takes(b); both != (overlap && takes(common)) || overlap != event.Overlap(b, a) {
			t.Errorf("%q and %q have %q in common (%t); both take %q: %t", a, b, common, overlap, subject, both)
		}
	})
}

// isSubscription reports whether text is a valid subscription: each wildcard is a whole token, and only the
// last token may be ">".
func isSubscription(text string) bool {
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		if token == "" || len(token) > 1 && strings.ContainsAny(token, "*>") || token == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}
