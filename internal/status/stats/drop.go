package stats

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"notifier/internal/outcome"
)

// limitReasons are the reasons of the drops that the digest counts, those of mutes included: duplicates and
// expired events are not missing from Slack, and dead ones are kept in the dead-letter stream.
var limitReasons = append(outcome.LimitReasons(), outcome.Muted)

// Drop is how many events of a category one limit has refused.
type Drop struct {
	Reason   string `json:"reason"`   // one of outcome.LimitReasons, or outcome.Muted
	Limit    string `json:"limit"`    // as a user writes it: 10/30m; "-" if it is unknown, or there is none
	Category string `json:"category"` // or Other
	Count    int64  `json:"count"`    // above 0
}

// unknownLimit replaces a limit without a text.
const unknownLimit = "-"

// dropPrefix is the part before the category in a field of the pending drops. Neither reason nor limit has a
// space.
func dropPrefix(reason, limit string) string {
	if limit == "" || strings.ContainsAny(limit, " \t\r\n") {
		limit = unknownLimit
	}
	return reason + " " + limit + " "
}

// Field is the field of Keys.Pending in which the drops are counted.
func (d Drop) Field() string { return dropPrefix(d.Reason, d.Limit) + d.Category }

// ParseDrop parses a field of Keys.Pending and its value. The error states what was expected.
func ParseDrop(field, value string) (Drop, error) {
	reason, rest, _ := strings.Cut(field, " ")
	limit, category, found := strings.Cut(rest, " ")
	if !found || limit == "" || !slices.Contains(limitReasons, reason) {
		return Drop{}, fmt.Errorf("field %.80q, expected a reason, a limit and a category", field)
	}
	count, err := parseCount(value)
	if err != nil {
		return Drop{}, fmt.Errorf("field %.80q: %w", field, err)
	}
	return Drop{Reason: reason, Limit: limit, Category: category, Count: count}, nil
}

func parseCount(value string) (int64, error) {
	count, err := strconv.ParseInt(value, 10, 64)
	if err != nil || count < 1 {
		return 0, fmt.Errorf("count %.40q, expected a whole number above 0", value)
	}
	return count, nil
}
