package ratelimit

import "time"

// Outcome is what was decided about one event.
type Outcome int

// The zero Outcome is none, so that a Decision nobody has made is never taken for an admission.
const (
	Admitted  Outcome = iota + 1 // send it; it is charged to both scopes, once
	Duplicate                    // its id was sent within the dedupe window, or another delivery of it is in flight
	Global                       // refused by the global limit
	Category                     // refused by the category's limit
)

// Decision is the script's answer for one event. Tier, Used and RetryAfter say more about a refusal (Global or
// Category) and are zero otherwise.
type Decision struct {
	Outcome    Outcome
	Tier       Tier          // the tier that refused; of several, the one that frees last
	Used       int           // slots taken in that tier
	RetryAfter time.Duration // until an event of the same cost fits, if nothing else comes in; exact to the microsecond
}
