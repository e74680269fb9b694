package ratelimit

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of a pace.
const (
	MaxPaceCount  = 1000
	MinPaceWindow = 100 * time.Millisecond
	MaxPaceWindow = time.Hour
)

var paceBounds = tierBounds{
	count: MaxPaceCount, shortest: MinPaceWindow, longest: MaxPaceWindow,
	form: "COUNT/DURATION such as 10/10s, or off", windows: "100ms to 1h in whole microseconds, such as 10s",
}

// ParsePace parses "COUNT/DURATION": so many posts to one channel in each rolling window, over all replicas;
// COUNT 1 to MaxPaceCount, DURATION MinPaceWindow to MaxPaceWindow. "off" is none, the zero Tier. The error
// names the invalid part and what was expected.
func ParsePace(text string) (Tier, error) {
	if text == "off" {
		return Tier{}, nil
	}
	if strings.Contains(text, ":") {
		return Tier{}, fmt.Errorf("%q, expected %s, without the PRECISION or fixed of a limit", text,
			paceBounds.form)
	}
	return parseTier(text, paceBounds)
}
