package pattern_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/pattern"
)

var numbers = pattern.List[int]{
	Form: "NAME=NUMBER such as a=1", Kind: "name", Name: pattern.Check,
	Value: func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, errors.New("expected a number")
		}
		return n, nil
	},
}

func TestAListOfValues(t *testing.T) {
	for text, want := range map[string]map[string]int{
		"  ": {}, " a = 1 ,b.>=2": {"a": 1, "b.>": 2}, "a=1,\n*=3": {"a": 1, "*": 3},
	} {
		got, err := numbers.Parse(text)
		if difference := cmp.Diff(want, got); err != nil || difference != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, difference)
		}
	}
}

// TestAListNamesAllThatIsWrong: each entry by itself, in the order in which they are written.
func TestAListNamesAllThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"a":     `"a", expected NAME=NUMBER such as a=1, separated by commas`,
		"a=1,":  `"", expected NAME=NUMBER such as a=1, separated by commas`,
		"a..=x": "\"a..\" has an empty token, expected text between all dots\na..: expected a number",
		"x, =1,b=1,b=y": "\"x\", expected NAME=NUMBER such as a=1, separated by commas\n\" =1\", expected NAME=NUMBER such as a=1, separated by commas\n" +
			"b is listed twice, expected each name once\nb: expected a number",
	} {
		got, err := numbers.Parse(text)
		if got != nil || err == nil || err.Error() != want {
			t.Errorf("%q: %v and %v, expected %s", text, got, err, want)
		}
	}
}
