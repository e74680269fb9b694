package pattern_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/gsl"
	"pgregory.net/rapid"

	"notifier/internal/pattern"
)

// words make categories and patterns that often match each other.
var words = []string{"a", "b", "ab", "ä"}

func anyCategory() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 4).Draw(t, "tokens"), ".")
	})
}

func anyPattern() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		tokens := rapid.SliceOfN(rapid.SampledFrom(append([]string{"*", "*"}, words...)), 0, 4).Draw(t, "tokens")
		if len(tokens) == 0 || rapid.Bool().Draw(t, "rest") {
			tokens = append(tokens, ">")
		}
		return strings.Join(tokens, ".")
	})
}

// natsMatches are the patterns to which the NATS server would deliver a category, if they were subscriptions.
func natsMatches(tb rapid.TB, patterns []string, category string) []string {
	subscriptions := gsl.NewSublist[string]()
	for _, text := range patterns {
		if err := subscriptions.Insert(text, text); err != nil {
			tb.Fatalf("NATS refuses %q: %v", text, err)
		}
	}
	var found []string
	subscriptions.Match(category, func(text string) { found = append(found, text) })
	return found
}

// mostSpecific compares patterns as the package comment describes it, in another way than the table: by a
// text in which "*" and ">" are sorted behind every literal.
func mostSpecific(patterns []string) string {
	rank := func(text string) string {
		var letters strings.Builder
		for _, token := range strings.Split(text, ".") {
			switch token {
			case "*":
				letters.WriteByte('y')
			case ">":
				letters.WriteByte('z')
			default:
				letters.WriteByte('x')
			}
		}
		return letters.String()
	}
	return slices.MinFunc(patterns, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
}

// TestATableFindsWhatNATSMatches: a pattern is found just if NATS matches one, and it is the most specific of
// those.
func TestATableFindsWhatNATSMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfNDistinct(rapid.OneOf(anyPattern(), anyCategory()), 0, 12, rapid.ID).Draw(t, "patterns")
		values := map[string]int{}
		for i, text := range patterns {
			values[text] = i
		}
		table := pattern.MustTable(values)
		for range 4 {
			category := anyCategory().Draw(t, "category")
			matching := natsMatches(t, patterns, category)
			value, got, found := table.Find(category)
			if found != (len(matching) > 0) {
				t.Fatalf("%q of %q: %q, and NATS matches %q", category, patterns, got, matching)
			}
			if found && (got != mostSpecific(matching) || values[got] != value) {
				t.Fatalf("%q of %q: %q with %d, expected %q", category, patterns, got, value, mostSpecific(matching))
			}
		}
	})
}

// FuzzPattern: every accepted pattern is valid for NATS and matches the same subjects.
func FuzzPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"team-a.>", "team-a"}, {"team-a.>", "team-a.job1.db"}, {"*.*", "a.b"}, {"a..b", "a"}, {"a*", "ab"},
		{"größe.*", "größe.x"}, {"a\x7f", "a\x7f"}, {"", ""}, {"$x", "$x"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, category string) {
		if err := pattern.Check(text); err != nil {
			if !strings.Contains(err.Error(), "expected") {
				t.Errorf("%q: %q does not name what is expected", text, err)
			}
			return
		}
		if !server.IsValidSubject(text) || len(text) > pattern.Longest {
			t.Fatalf("%q is taken, and no category can match it", text)
		}
		if pattern.HasWildcard(text) == (pattern.Check(text) == nil && server.IsValidLiteralSubject(text)) {
			t.Fatalf("%q has a wildcard: %t", text, pattern.HasWildcard(text))
		}
		if !server.IsValidLiteralSubject(category) || pattern.Check(category) != nil {
			return // nothing can be published there
		}
		value, by, found := pattern.MustTable(map[string]string{text: "value"}).Find(category)
		if found != (len(natsMatches(t, []string{text}, category)) > 0) || found && (by != text || value != "value") {
			t.Errorf("%q matches %q: %t by %q", text, category, found, by)
		}
	})
}
