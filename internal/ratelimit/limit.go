package ratelimit

import (
	"fmt"
	"math"
	"slices"
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

// MaxBuckets is how many buckets the window of a tier may have: a day in minutes.
const MaxBuckets = 1440

// Tier allows Count slots (1 to MaxCount) in every rolling window of length Window (MinWindow to MaxWindow,
// in whole microseconds).
type Tier struct {
	Count     int
	Window    time.Duration
	Precision time.Duration // bucket width, MinWindow to Window; 0: each admission is kept
	Fixed     bool          // the window resets at multiples of Window of the server's clock
}

// String writes the tier as a user would: 10/30m, 1000000/24h:15m, 200/24h:fixed.
func (t Tier) String() string {
	text := strconv.Itoa(t.Count) + "/" + term.ShortDuration(t.Window)
	switch {
	case t.Fixed:
		return text + fixedSuffix
	case t.Precision > 0:
		return text + ":" + term.ShortDuration(t.Precision)
	}
	return text
}

const fixedSuffix = ":fixed"

// Limit is 1 to MaxTiers tiers, all of which must hold. "10/30m+1/5s" is ten in half an hour and at least
// five seconds apart.
type Limit []Tier

// String writes the limit in its shortest form, tiers in the order in which they were given.
func (l Limit) String() string {
	tiers := make([]string, len(l))
	for i, t := range l {
		tiers[i] = t.String()
	}
	return strings.Join(tiers, "+")
}

// Exact reports whether the limit keeps each event: it has a rolling tier without a precision. An empty limit
// keeps nothing.
func (l Limit) Exact() bool {
	return slices.ContainsFunc(l, func(t Tier) bool { return !t.Fixed && t.Precision == 0 })
}

// bucketWidth is the length of the buckets that a limit is counted in, by the server's clock; 0: it keeps
// each event. It is the precision of the limit, or the greatest common divisor of its windows if all of them
// are fixed.
func (l Limit) bucketWidth() time.Duration {
	if l.Exact() {
		return 0
	}
	var width time.Duration
	for _, t := range l {
		if t.Precision > 0 {
			return t.Precision
		}
		width = greatestDivisor(width, t.Window)
	}
	return width
}

func greatestDivisor(a, b time.Duration) time.Duration {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// smallestCount is the highest cost, in slots, that can be admitted.
func (l Limit) smallestCount() int {
	smallest := MaxCount
	for _, t := range l {
		smallest = min(smallest, t.Count)
	}
	return smallest
}

// Most is how many slots the limit can let through in a time of this length, wherever that begins. Of a fixed
// window it meets one more than fit into it: up to twice COUNT in a rolling window.
func (l Limit) Most(span time.Duration) int {
	most := math.MaxInt
	for _, t := range l {
		windows := max(1, int((span+t.Window-1)/t.Window))
		if t.Fixed {
			windows++
		}
		most = min(most, windows*t.Count)
	}
	return most
}

// longestWindow is how long an admission can matter to this limit.
func (l Limit) longestWindow() time.Duration {
	var longest time.Duration
	for _, t := range l {
		longest = max(longest, t.Window)
	}
	return longest
}

// ParseLimit parses "COUNT/DURATION[:PRECISION|:fixed]", several of them joined with "+": "10/30m+1/5s". The
// error names the invalid part and what was expected.
func ParseLimit(text string) (Limit, error) {
	parts := strings.Split(text, "+")
	if len(parts) > MaxTiers {
		return nil, fmt.Errorf("%d tiers, expected at most %d", len(parts), MaxTiers)
	}
	limit := make(Limit, 0, len(parts))
	for _, part := range parts {
		tier, err := parseLimitTier(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		for _, other := range limit {
			if other.Window == tier.Window && other.Fixed == tier.Fixed {
				return nil, fmt.Errorf(
					"%s and %s: of two tiers with the same window one never has an effect; expected one",
					tier, other)
			}
		}
		limit = append(limit, tier)
	}
	if err := limit.checkPrecision(); err != nil {
		return nil, err
	}
	return limit, nil
}

// checkPrecision returns what is wrong with a limit that is counted in buckets, or nil.
func (l Limit) checkPrecision() error {
	width := l.bucketWidth()
	if width == 0 {
		return nil
	}
	for _, t := range l {
		switch {
		case t.Precision > 0 && t.Precision != width:
			return fmt.Errorf("precisions %s and %s, expected one for the whole limit",
				term.ShortDuration(width), term.ShortDuration(t.Precision))
		case t.Window%width != 0 && t.Fixed:
			return fmt.Errorf("precision %s, expected one that divides the fixed window of %s",
				term.ShortDuration(width), term.ShortDuration(t.Window))
		case t.Window > MaxBuckets*width:
			return fmt.Errorf(
				"buckets of %s divide the window of %s into more than %d parts, expected %s or longer: "+
					"give the limit a precision, or windows that have more in common",
				term.ShortDuration(width), term.ShortDuration(t.Window), MaxBuckets,
				term.ShortDuration(shortestPrecision(t.Window)))
		}
	}
	return nil
}

// tierBounds is what the parser of one kind of tier accepts: a count of 1 to count, and a window of shortest
// to longest. The texts complete its errors.
type tierBounds struct {
	count             int
	shortest, longest time.Duration
	form, windows     string
}

var limitBounds = tierBounds{
	count: MaxCount, shortest: MinWindow, longest: MaxWindow,
	form:    "COUNT/DURATION such as 10/30m or 10/30m+1/5s",
	windows: "1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms",
}

// parseLimitTier parses one tier of a limit, with what may stand behind it.
func parseLimitTier(text string) (Tier, error) {
	text, suffix, found := strings.Cut(text, ":")
	tier, err := parseTier(text, limitBounds)
	switch {
	case err != nil || !found:
		return tier, err
	case ":"+suffix == fixedSuffix:
		tier.Fixed = true
		return tier, nil
	}
	tier.Precision, err = time.ParseDuration(suffix)
	switch {
	case err != nil:
		return Tier{}, fmt.Errorf("precision %q, expected a duration such as 1m, or fixed", suffix)
	case tier.Precision < MinWindow || tier.Precision > tier.Window || tier.Precision%time.Microsecond != 0:
		return Tier{}, fmt.Errorf("precision %q, expected %s to the window of %s, in whole microseconds",
			suffix, term.ShortDuration(MinWindow), term.ShortDuration(tier.Window))
	case tier.Window > MaxBuckets*tier.Precision:
		return Tier{}, fmt.Errorf(
			"precision %q divides the window of %s into more than %d parts, expected %s or longer",
			suffix, term.ShortDuration(tier.Window), MaxBuckets,
			term.ShortDuration(shortestPrecision(tier.Window)))
	}
	return tier, nil
}

// shortestPrecision is the window's MaxBuckets-th part, rounded up to whole microseconds.
func shortestPrecision(window time.Duration) time.Duration {
	return (window + MaxBuckets*time.Microsecond - 1) / (MaxBuckets * time.Microsecond) * time.Microsecond
}

func parseTier(text string, bounds tierBounds) (Tier, error) {
	countText, windowText, found := strings.Cut(text, "/")
	if !found || strings.ContainsAny(windowText, "/,;") { // several tiers, joined with something else
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
