package ratelimit

import (
	"fmt"
	"strings"
	"time"
)

// Rules define which limit applies to which category.
type Rules struct {
	Global    Limit            // over all categories together
	Category  Limit            // for each category that has no override
	Overrides map[string]Limit // for these categories instead
	Pace      Tier             // posts to one channel, which wait for their turn; the zero Tier: none
}

// LimitFor returns the limit of one category.
func (r Rules) LimitFor(category string) Limit {
	if limit, found := r.Overrides[category]; found {
		return limit
	}
	return r.Category
}

// MaxCost returns the highest cost, in slots, at which an event of the category can ever be admitted.
func (r Rules) MaxCost(category string) int {
	return min(r.Global.smallestCount(), r.LimitFor(category).smallestCount())
}

// LongestWindow is the longest window of any rule: how long an admission can matter at all.
func (r Rules) LongestWindow() time.Duration {
	longest := max(r.Global.longestWindow(), r.Category.longestWindow())
	for _, limit := range r.Overrides {
		longest = max(longest, limit.longestWindow())
	}
	return longest
}

// ParseOverrides parses "errors=20/30m+2/10s,deploys=5/1h". An empty text gives no overrides. The error names the
// category and what was expected.
func ParseOverrides(text string) (map[string]Limit, error) {
	overrides := map[string]Limit{}
	if strings.TrimSpace(text) == "" {
		return overrides, nil
	}
	for _, part := range strings.Split(text, ",") {
		category, limitText, found := strings.Cut(strings.TrimSpace(part), "=")
		category = strings.TrimSpace(category) // no subject has whitespace, so " = " is only formatting
		if !found || category == "" {
			return nil, fmt.Errorf("%q, expected CATEGORY=LIMIT such as errors=20/30m", part)
		}
		if _, twice := overrides[category]; twice {
			return nil, fmt.Errorf("%s is listed twice, expected each category once", category)
		}
		limit, err := ParseLimit(limitText)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", category, err)
		}
		overrides[category] = limit
	}
	return overrides, nil
}
