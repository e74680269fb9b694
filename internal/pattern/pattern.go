// Package pattern looks up the value for a category, such as a limit or a channel, in a table of NATS-style
// patterns.
//
// A pattern is tokens with dots between them. "*" stands for one token, ">" for one or more and only at the
// end. Of several patterns that match, the most specific one counts: token by token from the left, a literal
// precedes "*", and "*" precedes ">". So the order in which they are written never matters.
//
// The package is a leaf: it does not know the use of a category.
package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The wildcards.
const (
	one  = "*" // one token
	rest = ">" // one token or more, at the end
)

// Longest is the longest category that is ever admitted, in bytes. A pattern that needs a longer one never
// matches.
const Longest = 128

// Check rejects a pattern that no category can match: an empty token, ">" before its end, a wildcard that is
// a part of a token, a space or control character, invalid UTF-8, or more than Longest bytes.
func Check(text string) error {
	switch {
	case text == "":
		return errors.New("is empty, expected a category such as errors, or a pattern such as team-a.>")
	case len(text) > Longest:
		return fmt.Errorf("has %d bytes, expected at most %d: no longer category is ever sent", len(text), Longest)
	case !utf8.ValidString(text):
		return errors.New("is not valid UTF-8, expected text that can be part of a subject")
	case strings.ContainsFunc(text, isForeign):
		return errors.New("has a space or a control character, expected none: no category has one")
	}
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return errors.New("has an empty token, expected text between all dots")
		case token == rest && i < len(tokens)-1:
			return errors.New("has > before its end, expected > as the last token only")
		case token != one && token != rest && strings.ContainsAny(token, one+rest):
			return fmt.Errorf("has a wildcard inside of the token %q, expected * or > as a whole token", token)
		}
	}
	return nil
}

// isForeign reports whether no category has the character. NATS allows white space beyond ASCII in subjects.
func isForeign(r rune) bool { return r == ' ' || unicode.IsControl(r) }

// IsCategory reports whether an event that is decided can have this category.
func IsCategory(text string) bool { return Check(text) == nil && !HasWildcard(text) }

// HasWildcard reports whether text has a wildcard. A publisher can use one as text in a subject, but no event
// with such a category is decided.
func HasWildcard(text string) bool { return strings.ContainsAny(text, one+rest) }

// Table finds the value of the most specific pattern that matches a category. The zero Table is empty. Tables
// are immutable and safe for concurrent use.
type Table[T any] struct {
	literal   map[string]T
	wildcards []entry[T] // the most specific one first
}

type entry[T any] struct {
	pattern string
	tokens  []string
	value   T
}

// NewTable returns a table of patterns and their values. If Check rejects patterns, the error names the first
// one in alphabetical order.
func NewTable[T any](values map[string]T) (Table[T], error) {
	t := Table[T]{literal: map[string]T{}}
	patterns := make([]string, 0, len(values))
	for text := range values {
		patterns = append(patterns, text)
	}
	slices.Sort(patterns)
	for _, text := range patterns {
		if err := Check(text); err != nil {
			return Table[T]{}, fmt.Errorf("%q %w", text, err)
		}
		if HasWildcard(text) {
			t.wildcards = append(t.wildcards, entry[T]{text, strings.Split(text, "."), values[text]})
		} else {
			t.literal[text] = values[text]
		}
	}
	slices.SortStableFunc(
		t.wildcards,
		func(a, b entry[T]) int { return slices.CompareFunc(a.tokens, b.tokens, bySpecificity) },
	)
	return t, nil
}

// bySpecificity orders two tokens of the same place: a literal, then "*", then ">". Literals are alike: of
// two patterns that match one category, those in the same place are equal.
func bySpecificity(a, b string) int { return cmp.Compare(vagueness(a), vagueness(b)) }

func vagueness(token string) int {
	switch token {
	case one:
		return 1
	case rest:
		return 2
	default:
		return 0
	}
}

// Find returns the value for a category and the pattern that matched.
func (t Table[T]) Find(category string) (value T, pattern string, found bool) {
	if value, found = t.literal[category]; found {
		return value, category, true
	}
	for _, e := range t.wildcards {
		if matches(e.tokens, category) {
			return e.value, e.pattern, true
		}
	}
	return value, "", false
}

// matches reports whether tokens match a category.
func matches(tokens []string, category string) bool {
	for i, want := range tokens {
		if want == rest {
			return category != ""
		}
		token, after, more := strings.Cut(category, ".")
		if token == "" || want != one && token != want || more != (i < len(tokens)-1) {
			return false
		}
		category = after
	}
	return true
}

// Len counts the patterns.
func (t Table[T]) Len() int { return len(t.literal) + len(t.wildcards) }

// All returns the patterns and their values: those without a wildcard in alphabetical order, then the others,
// the most specific one first.
func (t Table[T]) All() func(yield func(pattern string, value T) bool) {
	return func(yield func(string, T) bool) {
		literals := make([]string, 0, len(t.literal))
		for text := range t.literal {
			literals = append(literals, text)
		}
		slices.Sort(literals)
		for _, text := range literals {
			if !yield(text, t.literal[text]) {
				return
			}
		}
		for _, e := range t.wildcards {
			if !yield(e.pattern, e.value) {
				return
			}
		}
	}
}

// MustTable is like NewTable, but panics on an error. Use it for constant tables and in tests.
func MustTable[T any](values map[string]T) Table[T] {
	table, err := NewTable(values)
	if err != nil {
		panic(err)
	}
	return table
}
