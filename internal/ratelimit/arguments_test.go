package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// Calls of admit.lua by hand or by another program. It decides nothing that it does not understand.

// admitRaw calls admit.lua with one global scope and one category, and expects an error. The arguments from
// the rules on are the test's.
func (s *store) admitRaw(t *testing.T, arguments ...any) {
	t.Helper()
	keys := []string{
		"{n}:meta", "{n}:inflight", "{n}:sent", "{n}:categories",
		"{n}:global", "{n}:buckets:global", "{n}:category:a", "{n}:buckets:category:a",
	}
	before := s.contents(t)
	arguments = append([]any{day.Microseconds(), day.Microseconds(), "", "r", 0}, arguments...)
	reply, err := redis.NewScript(lua.Admit).Run(t.Context(), s.Client, keys, arguments...).Result()
	if err == nil || strings.Contains(err.Error(), "unpack") {
		t.Errorf("%v, %v; expected an error that says what is wrong", reply, err)
	}
	s.unchanged(t, before)
}

// One limit each, or none: a scope that does not name the wider one would leave out its limit.
func TestIncompleteScopeIsAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		window := day.Microseconds()
		for _, scopes := range [][]any{
			{1, 0, window, 1, 0, window}, // a category without the global scope
			{1, 0, window, 1, 2, window}, // beside itself
			{1, 0, window, 1, 3, window}, // below one that does not exist
			{1, 0, window, 2, 1, window}, // without a rule
		} {
			arguments := append([]any{1, 1, 0, 1, window, 0}, scopes...)
			s.admitRaw(t, append(arguments, 0, 1, "a", 2, 1, "a:e", "d", 1)...)
		}
	})
}

// Without a key of what is in flight or was sent nothing is looked up, so that the bound has to be looked at
// by itself.
func TestTooManyEventsAreAnError(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		const many = 5001
		window := day.Microseconds()
		arguments := []any{1, 1, 0, 1_000_000, window, 0, 1, 0, window, 1, 1, window, 0, 1, "a", 2, many}
		for i := range many {
			arguments = append(arguments, fmt.Sprint("a:e", i))
		}
		for range many {
			arguments = append(arguments, "d")
		}
		for range many {
			arguments = append(arguments, 1)
		}
		s.admitRaw(t, arguments...)
	})
}
