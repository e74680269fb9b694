package ratelimit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"notifier/internal/term"
)

// Bounds of the limits that can be configured. The script's arithmetic is exact well beyond them.
const (
	MaxTiers  = 8
	MaxCount  = 1_000_000
	MinWindow = time.Millisecond
	MaxWindow = 31 * 24 * time.Hour
)

// Tier allows Count slots (1 to MaxCount) in every rolling window of length Window (MinWindow to MaxWindow,
// in whole microseconds).
type Tier struct {
	Count  int
	Window time.Duration
}

// String writes the tier as a user would: 10/30m.
func (t Tier) String() string {
	return strconv.Itoa(t.Count) + "/" + term.ShortDuration(t.Window)
}

// Limit is 1 to MaxTiers tiers, all of which must hold. "10/30m+1/5s" is ten in half an hour and at least five
// seconds apart.
type Limit []Tier

// String writes the limit in its shortest form, tiers in the order in which they were given.
func (l Limit) String() string {
	tiers := make([]string, len(l))
	for i, t := range l {
		tiers[i] = t.String()
	}
	return strings.Join(tiers, "+")
}

// smallestCount is the highest cost, in slots, that can be admitted.
func (l Limit) smallestCount() int {
	smallest := MaxCount
	for _, t := range l {
		smallest = min(smallest, t.Count)
	}
	return smallest
}

// longestWindow is how long an admission can matter to this limit.
func (l Limit) longestWindow() time.Duration {
	var longest time.Duration
	for _, t := range l {
		longest = max(longest, t.Window)
	}
	return longest
}

// ParseLimit parses "COUNT/DURATION[+COUNT/DURATION...]", for example "10/30m+1/5s". The error names the invalid part and
// what was expected.
func ParseLimit(text string) (Limit, error) {
	parts := strings.Split(text, "+")
	if len(parts) > MaxTiers {
		return nil, fmt.Errorf("%d tiers, expected at most %d", len(parts), MaxTiers)
	}
	limit := make(Limit, 0, len(parts))
	for _, part := range parts {
		tier, err := parseTier(strings.TrimSpace(part), limitBounds)
		if err != nil {
			return nil, err
		}
		for _, other := range limit {
			if other.Window == tier.Window {
				return nil, fmt.Errorf("%s and %s: of two tiers with the same window one never has an effect; expected one", tier, other)
			}
		}
		limit = append(limit, tier)
	}
	return limit, nil
}

// tierBounds is what the parser of one kind of tier accepts: a count of 1 to count, and a window of shortest to longest. The
// texts complete its errors.
type tierBounds struct {
	count             int
	shortest, longest time.Duration
	form, windows     string
}

var limitBounds = tierBounds{
	count: MaxCount, shortest: MinWindow, longest: MaxWindow,
	form: "COUNT/DURATION such as 10/30m", windows: "1ms to 744h (31 days) such as 30m, 1h30m or 500ms",
}

func parseTier(text string, bounds tierBounds) (Tier, error) {
	countText, windowText, found := strings.Cut(text, "/")
	if !found {
		return Tier{}, fmt.Errorf("%q, expected %s", text, bounds.form)
	}
	count, err := strconv.Atoi(countText)
	if err != nil || count < 1 || count > bounds.count {
		return Tier{}, fmt.Errorf("count %q, expected a whole number from 1 to %d", countText, bounds.count)
	}
	window, err := time.ParseDuration(windowText)
	if err != nil || window < bounds.shortest || window > bounds.longest {
		return Tier{}, fmt.Errorf("duration %q, expected %s", windowText, bounds.windows)
	}
	if window%time.Microsecond != 0 {
		return Tier{}, fmt.Errorf("duration %q, expected whole microseconds", windowText)
	}
	return Tier{Count: count, Window: window}, nil
}
