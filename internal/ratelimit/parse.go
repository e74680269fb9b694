package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"notifier/internal/pattern"
)

// The parsers of lists return all errors at once, joined as by errors.Join. Each names the entry and what was
// expected.

// ParseOverrides parses "errors=20/30m+2/10s,team-a.>=5/1h": limits of categories, by name or pattern. An
// empty text gives none.
func ParseOverrides(text string) (pattern.Table[Limit], error) {
	limits, err := pattern.List[Limit]{
		Form: "CATEGORY=LIMIT such as errors=20/30m+2/10s", Kind: "category", Name: pattern.Check,
		Value: ParseLimit,
	}.Parse(text)
	if err != nil {
		return pattern.Table[Limit]{}, err
	}
	return pattern.NewTable(limits)
}

// ParseGroupLimit parses the limit that all categories of a group share. An empty text gives an empty Limit:
// groups have none.
func ParseGroupLimit(text string) (Limit, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	return ParseLimit(text)
}

// ParseGroupOverrides parses "team-a=40/30m,team-b=20/30m": limits of groups, by name. An empty text gives
// none.
func ParseGroupOverrides(text string) (map[string]Limit, error) {
	return pattern.List[Limit]{
		Form: "GROUP=LIMIT such as team-a=40/30m", Kind: "group", Name: CheckGroup, Value: ParseLimit,
	}.Parse(text)
}

// CheckGroup returns what is wrong with the name of a group, or nil. The error follows the name.
func CheckGroup(name string) error {
	if pattern.HasWildcard(name) || strings.Contains(name, ".") {
		return errors.New(
			"is not a group, expected the first token of a category, such as team-a, without dots and wildcards")
	}
	return pattern.Check(name)
}

// ParseReserve parses "payments=5,deploys=2": how many slots of the global limit are kept for a category, 1
// to MaxCount. An empty text gives none.
func ParseReserve(text string) (map[string]int, error) {
	return pattern.List[int]{
		Form: "CATEGORY=SLOTS such as payments=5", Kind: "category", Name: checkReserved, Value: parseSlots,
	}.Parse(text)
}

func checkReserved(name string) error {
	if pattern.HasWildcard(name) {
		return errors.New(
			"is a pattern, expected the name of one category, such as payments, for which the slots are kept")
	}
	return pattern.Check(name)
}

func parseSlots(text string) (int, error) {
	slots, err := strconv.Atoi(text)
	if err != nil || slots < 1 || slots > MaxCount {
		return 0, fmt.Errorf("slots %q, expected a whole number from 1 to %d", text, MaxCount)
	}
	return slots, nil
}
