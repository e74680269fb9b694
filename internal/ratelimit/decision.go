package ratelimit

import (
	"fmt"
	"time"

	"notifier/internal/outcome"
)

// Verdict is the decision about one event.
type Verdict int

// The zero Verdict is invalid, so that an unset Decision is never taken for an admission.
const (
	Admitted  Verdict = iota + 1 // send it; it is charged to all its scopes, once
	Duplicate                    // its id was sent within the dedupe window, or in flight for another delivery
	Global                       // refused by the global limit
	Group                        // refused by the limit that the categories of its group share
	Category                     // refused by the category's limit
)

// Reason is why an event is dropped, in the words of package outcome. An admitted one has none.
func (v Verdict) Reason() string {
	switch v {
	case Admitted:
		return ""
	case Duplicate:
		return outcome.Duplicate
	case Global:
		return outcome.Global
	case Group:
		return outcome.Group
	case Category:
		return outcome.Category
	default:
		panic(fmt.Sprintf("ratelimit: %d is no verdict", v))
	}
}

// Decision is the script's answer for one event. Tier, Used, Reserved and RetryAfter describe a refusal
// (Global, Group or Category) and are zero otherwise.
type Decision struct {
	Verdict    Verdict
	Tier       Tier          // the tier that refused; of several, the one that has room last
	Used       int           // slots taken in that tier
	Reserved   int           // Global: slots of the tier that are kept for other categories
	RetryAfter time.Duration // until an event of the same cost fits, if nothing else is admitted
	AtLeast    bool          // RetryAfter is a lower bound: of reserved slots, buckets, or a limit that ends
	Never      bool          // its cost is above the tier's COUNT: it cannot fit under this temporary limit

	// Posts counts the posts of a refused event that began under an earlier admission. LastPost names the last
	// one, which may be in Slack. It is empty if none began, or if all certainly failed.
	Posts    int
	LastPost string
}
