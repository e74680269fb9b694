package event_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"notifier/internal/event"
	"notifier/test/kit"
)

func TestPatternCategory(t *testing.T) {
	for _, tc := range []struct {
		pattern, subject string
		want             string // "": no match
	}{
		{"notify.>", "notify.errors", "errors"},
		{"notify.>", "notify.errors.db", "errors.db"},
		{"notify.>", "notify", ""},
		{"notify.>", "notify.errors.", ""},
		{"notify.>", "notify.errors..db", ""},
		{"notify.>", "notifyx.errors", ""},
		{"notify.*", "notify.errors", "errors"},
		{"notify.*", "notify.errors.db", ""},
		{"svc.*.alerts", "svc.billing.alerts", "billing"},
		{"svc.*.alerts", "svc.billing.metrics", ""},
		{"*.*.alerts", "eu.billing.alerts", "billing"},
		{"*.*.alerts", ".billing.alerts", ""},
		{"a>.*", "a>.errors", "errors"}, // a wildcard is a whole token
	} {
		p, err := event.ParsePattern(tc.pattern)
		if err != nil {
			t.Errorf("ParsePattern(%q): %v", tc.pattern, err)
			continue
		}
		if p.String() != tc.pattern {
			t.Errorf("ParsePattern(%q).String() = %q", tc.pattern, p)
		}
		got, ok := p.Category(tc.subject)
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: Category(%q) = %q, %v; want %q", tc.pattern, tc.subject, got, ok, tc.want)
		}
	}
}

func TestParsePatternErrors(t *testing.T) {
	for _, tc := range []struct{ subject, want string }{
		{"", "is empty, expected one with a wildcard"},
		{"notify", "no wildcard, expected > or *"},
		{"notify.err*", "as a whole token"},
		{"notify.*.", "empty token"},
		{"notify.>.errors", "> as the last token only"},
		{"notify. >", "whitespace or a control character"},
		{"not\x1bify.>", "whitespace or a control character"},
		{"not\xffify.>", "not valid UTF-8"},
		{"$JS.API.>", "reserved"},
	} {
		p, err := event.ParsePattern(tc.subject)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("ParsePattern(%q) error = %v, want one with %q", tc.subject, err, tc.want)
		}
		if _, ok := p.Category(tc.subject); ok || p.String() != "" {
			t.Errorf("ParsePattern(%q) returned a pattern that matches, with an error", tc.subject)
		}
	}
}

// FuzzPattern holds ParsePattern to its list of errors, and Category to a matcher that is written
// differently.
func FuzzPattern(f *testing.F) {
	f.Add("notify.>", "notify.errors.db")
	f.Add("notify.*", "notify.errors")
	f.Add("svc.*.alerts", "svc.billing.alerts")
	f.Add("*.*.>", "a.b.c.d")
	f.Add("$JS.>", "$JS.API")
	f.Add("a..>", "a..b")
	f.Add("a.\xff.>", "a.\xff.b")
	f.Fuzz(func(t *testing.T, pattern, subject string) {
		p, err := event.ParsePattern(pattern)
		tokens := strings.Split(pattern, ".")
		wildcards, empty, early := 0, false, false
		for i, token := range tokens {
			empty = empty || token == ""
			early = early || token == ">" && i < len(tokens)-1
			if token == "*" || token == ">" {
				wildcards++
			}
		}
		bad := empty || early || wildcards == 0 || pattern[0] == '$' || !utf8.ValidString(pattern) ||
			strings.IndexFunc(pattern, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) >= 0
		if bad != (err != nil) {
			t.Fatalf("ParsePattern(%q) error = %v, want an error: %v", pattern, err, bad)
		}
		got, ok := p.Category(subject)
		if err != nil {
			if ok {
				t.Fatalf("the pattern of an error matches %q", subject)
			}
			return
		}
		want, match := referenceCategory(tokens, strings.Split(subject, "."))
		if got != want || ok != match {
			t.Fatalf("%q: Category(%q) = %q, %v; want %q, %v", pattern, subject, got, ok, want, match)
		}
	})
}

// referenceCategory matches token lists by recursion, and returns the part that the last wildcard matches.
func referenceCategory(pattern, subject []string) (string, bool) {
	for _, token := range subject {
		if token == "" {
			return "", false
		}
	}
	var match func(p, s []string) (string, bool)
	match = func(p, s []string) (string, bool) {
		switch {
		case len(p) == 0:
			return "", len(s) == 0
		case len(s) == 0:
			return "", false
		case p[0] == ">":
			return strings.Join(s, "."), true
		case p[0] != "*" && p[0] != s[0]:
			return "", false
		}
		later, ok := match(p[1:], s[1:])
		if ok && later == "" && p[0] == "*" {
			later = s[0]
		}
		return later, ok
	}
	return match(pattern, subject)
}

func mustPattern(tb testing.TB, subject string) event.Pattern {
	tb.Helper()
	p, err := event.ParsePattern(subject)
	kit.Check(tb, err)
	return p
}

func TestPatternSubject(t *testing.T) {
	cases := []struct {
		pattern, category, want string // want empty: an error
	}{
		{"notify.>", "errors.db", "notify.errors.db"},
		{"notify.*", "errors", "notify.errors"},
		{"svc.*.alerts", "api", "svc.api.alerts"},
		{"notify.*", "errors.db", ""},
		{"notify.>", "", ""},
		{"notify.>", "a..b", ""},
		{"notify.>", "a b", ""},
		{"notify.>", "*", ""},
		{"*.notify.*", "errors", ""},
	}
	for _, c := range cases {
		pattern, err := event.ParsePattern(c.pattern)
		kit.Check(t, err)
		got, err := pattern.Subject(c.category)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s for %q: %q, %v; want %q", c.pattern, c.category, got, err, c.want)
		}
	}
}

func TestPatternRepeated(t *testing.T) {
	t.Parallel()
	cases := []struct {
		pattern, name, want string // want empty: the name has no prefix too many
	}{
		{"notify.>", "notify.errors", "errors"},
		{"notify.>", "notify.errors.db", "errors.db"},
		{"notify.*", "notify.errors", "errors"},
		{"svc.*.alerts", "svc.api.alerts", "api"},
		{"notify.>", "notify", ""},
		{"notify.>", "notifyx.errors", ""},
		{"*.>", "team-a.errors", ""},
		{">", "notify.errors", ""},
	}
	for _, c := range cases {
		got, found := mustPattern(t, c.pattern).Repeated(c.name)
		if got != c.want || found != (c.want != "") {
			t.Errorf("%s and %s: %q, %v; want %q", c.pattern, c.name, got, found, c.want)
		}
	}
}
