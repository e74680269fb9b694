package pattern

import (
	"errors"
	"fmt"
	"strings"
)

// List describes the syntax of a text such as "errors=20/30m,team-a.>=5/1h": entries NAME=VALUE with commas
// between them.
type List[T any] struct {
	Form string // of an entry, for its errors: CATEGORY=LIMIT such as errors=20/30m
	Kind string // noun for a name in errors: category
	// checks a name; its error continues the quoted name: "a..b" has an empty token, expected ...
	Name  func(string) error
	Value func(string) (T, error) // reads a value, without white space around it
}

// Parse returns the values by name. An empty text yields an empty map. The error joins all problems with
// errors.Join; each names the entry and the expected form.
func (l List[T]) Parse(text string) (map[string]T, error) {
	values := map[string]T{}
	if strings.TrimSpace(text) == "" {
		return values, nil
	}
	var wrong []error
	for _, entry := range strings.Split(text, ",") {
		name, valueText, found := strings.Cut(entry, "=")
		name, valueText = strings.TrimSpace(name), strings.TrimSpace(valueText)
		if !found || name == "" ||
			strings.ContainsAny(valueText, "=;") { // several entries, separated by something else
			wrong = append(wrong, fmt.Errorf("%q, expected %s, separated by commas", entry, l.Form))
			continue
		}
		if _, twice := values[name]; twice {
			wrong = append(wrong, fmt.Errorf("%s is listed twice, expected each %s once", name, l.Kind))
		}
		if err := l.Name(name); err != nil {
			wrong = append(wrong, fmt.Errorf("%q %w", name, err))
		}
		value, err := l.Value(valueText)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
		values[name] = value
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return values, nil
}
