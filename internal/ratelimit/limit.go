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

// Bounds of a limit. The scripts compute exactly far beyond them.
const (
	maxTiers   = 8
	maxCount   = 1_000_000
	minWindow  = time.Millisecond
	maxWindow  = 31 * 24 * time.Hour
	maxBuckets = 1440 // per window: a day in minutes
)

// Bounds of a pace.
const (
	maxPaceCount  = 1000
	minPaceWindow = 100 * time.Millisecond
	maxPaceWindow = time.Hour
)

// Tier allows Count slots in every window of length Window.
type Tier struct {
	Count     int           // 1 to 1,000,000
	Window    time.Duration // 1 ms to 31 days, in whole microseconds
	Precision time.Duration // bucket width, 1 ms to Window. Zero stores every admission.
	Fixed     bool          // the window resets at multiples of Window since 1970, by the clock of Redis
}

const fixedSuffix = ":fixed"

var short = term.ShortDuration

// String returns the tier as ParseLimit accepts it: 10/30m, 1000000/24h:15m, 200/24h:fixed.
func (t Tier) String() string {
	text := strconv.Itoa(t.Count) + "/" + short(t.Window)
	switch {
	case t.Fixed:
		return text + fixedSuffix
	case t.Precision > 0:
		return text + ":" + short(t.Precision)
	}
	return text
}

// Limit is a list of 1 to 8 tiers. An event needs room in each of them: "10/30m+1/5s" allows ten events in
// half an hour, at least five seconds apart.
type Limit []Tier

// String returns the limit as ParseLimit accepts it, with the tiers in their original order.
func (l Limit) String() string {
	tiers := make([]string, len(l))
	for i, t := range l {
		tiers[i] = t.String()
	}
	return strings.Join(tiers, "+")
}

// exact reports whether the limit stores every admission, because it has a rolling tier without a precision.
// An empty limit is not exact.
func (l Limit) exact() bool {
	return slices.ContainsFunc(l, func(t Tier) bool { return !t.Fixed && t.Precision == 0 })
}

// bucketWidth returns the precision of the limit. If all windows are fixed, it returns their greatest common
// divisor. It returns zero if the limit is exact.
func (l Limit) bucketWidth() time.Duration {
	if l.exact() {
		return 0
	}
	var width time.Duration
	for _, t := range l {
		if t.Precision > 0 {
			return t.Precision
		}
		width = gcd(width, t.Window)
	}
	return width
}

func gcd(a, b time.Duration) time.Duration {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// minCount returns the highest cost, in slots, that fits into every tier.
func (l Limit) minCount() int {
	count := maxCount
	for _, t := range l {
		count = min(count, t.Count)
	}
	return count
}

// Most bounds the slots that the limit admits in any interval of length span. The interval can overlap one
// more fixed window than it has room for, so a fixed tier admits up to twice Count in a rolling window.
func (l Limit) Most(span time.Duration) int {
	slots := math.MaxInt
	for _, t := range l {
		windows := max(1, int((span+t.Window-1)/t.Window))
		if t.Fixed {
			windows++
		}
		slots = min(slots, windows*t.Count)
	}
	return slots
}

func (l Limit) maxWindow() time.Duration {
	var window time.Duration
	for _, t := range l {
		window = max(window, t.Window)
	}
	return window
}

// ParseLimit parses tiers of the form COUNT/DURATION[:PRECISION|:fixed], joined with "+", such as
// "10/30m+1/5s". See Tier for the ranges. The error names the invalid part and the expected form.
func ParseLimit(text string) (Limit, error) {
	parts := strings.Split(text, "+")
	if len(parts) > maxTiers {
		return nil, fmt.Errorf("%d tiers, expected at most %d", len(parts), maxTiers)
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

// checkPrecision returns an error unless buckets of one width can represent every tier.
func (l Limit) checkPrecision() error {
	width := l.bucketWidth()
	if width == 0 {
		return nil
	}
	for _, t := range l {
		switch {
		case t.Precision > 0 && t.Precision != width:
			return fmt.Errorf("precisions %s and %s, expected one for the whole limit",
				short(width), short(t.Precision))
		case t.Window%width != 0 && t.Fixed:
			return fmt.Errorf("precision %s, expected one that divides the fixed window of %s",
				short(width), short(t.Window))
		case t.Window > maxBuckets*width:
			return fmt.Errorf("buckets of %s divide the window of %s into more than %d parts, "+
				"expected %s or longer: give the limit a precision, or windows that have more in common",
				short(width), short(t.Window), maxBuckets,
				short(minPrecision(t.Window)))
		}
	}
	return nil
}

func parseLimitTier(text string) (Tier, error) {
	text, suffix, found := strings.Cut(text, ":")
	tier, err := limitBounds.parse(text)
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
	case tier.Precision < minWindow || tier.Precision > tier.Window || tier.Precision%time.Microsecond != 0:
		return Tier{}, fmt.Errorf("precision %q, expected %s to the window of %s, in whole microseconds",
			suffix, short(minWindow), short(tier.Window))
	case tier.Window > maxBuckets*tier.Precision:
		return Tier{}, fmt.Errorf(
			"precision %q divides the window of %s into more than %d parts, expected %s or longer",
			suffix, short(tier.Window), maxBuckets, short(minPrecision(tier.Window)))
	}
	return tier, nil
}

// minPrecision divides the window by maxBuckets, rounded up to whole microseconds.
func minPrecision(window time.Duration) time.Duration {
	return (window + maxBuckets*time.Microsecond - 1) / (maxBuckets * time.Microsecond) * time.Microsecond
}

// ParsePace parses COUNT/DURATION, the posts allowed to one channel in each rolling window by all workers
// together. COUNT is 1 to 1000 and DURATION 100 ms to 1 h. The text "off" gives the zero Tier. The error
// names the invalid part and the expected form.
func ParsePace(text string) (Tier, error) {
	if text == "off" {
		return Tier{}, nil
	}
	if strings.Contains(text, ":") {
		return Tier{}, fmt.Errorf("%q, expected %s, without the PRECISION or fixed of a limit",
			text, paceBounds.form)
	}
	return paceBounds.parse(text)
}

// tierBounds bounds the tiers that parse accepts. The texts complete its errors.
type tierBounds struct {
	maxCount             int
	minWindow, maxWindow time.Duration
	form, windows        string
}

var limitBounds = tierBounds{
	maxCount: maxCount, minWindow: minWindow, maxWindow: maxWindow,
	form:    "COUNT/DURATION such as 10/30m or 10/30m+1/5s",
	windows: "1ms to 744h (31 days) in h, m, s or ms, such as 30m, 1h30m or 500ms",
}

var paceBounds = tierBounds{
	maxCount: maxPaceCount, minWindow: minPaceWindow, maxWindow: maxPaceWindow,
	form: "COUNT/DURATION such as 10/10s, or off", windows: "100ms to 1h in h, m, s or ms, such as 10s",
}

func (b tierBounds) parse(text string) (Tier, error) {
	countText, windowText, found := strings.Cut(text, "/")
	if !found || strings.ContainsAny(windowText, "/,;") { // tiers joined with the wrong separator
		return Tier{}, fmt.Errorf("%q, expected %s", text, b.form)
	}
	count, err := strconv.Atoi(countText)
	if err != nil || count < 1 || count > b.maxCount {
		return Tier{}, fmt.Errorf("count %q, expected a whole number from 1 to %d", countText, b.maxCount)
	}
	window, err := time.ParseDuration(windowText)
	if err != nil || window < b.minWindow || window > b.maxWindow {
		return Tier{}, fmt.Errorf("duration %q, expected %s", windowText, b.windows)
	}
	if window%time.Microsecond != 0 {
		return Tier{}, fmt.Errorf("duration %q, expected whole microseconds", windowText)
	}
	return Tier{Count: count, Window: window}, nil
}
