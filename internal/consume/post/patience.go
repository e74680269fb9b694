package post

import (
	"time"

	"notifier/internal/consume/post/lanes"
)

// An event that Slack fails to take while it takes others is poisoned: a front end refuses its content with a
// page of HTML, or it makes Slack answer internal_error each time. A few failures prove nothing, because
// Slack has brown-outs in which most posts fail, whatever they say. So the event is tried on, at the back of
// its lane and after growing pauses, for some five minutes; and it is to blame only if posts of other events
// of its channel came through meanwhile.

const (
	// failuresToBlame is how often in a row an event has to fail.
	failuresToBlame = 15

	// oneInTries is the share of the tries of others that has to have succeeded since its first failure. In a
	// worse brown-out, or where nothing else is to be posted, the event is tried on.
	oneInTries = 5
)

// Bounds of an event's own backoff after a failure that nothing explains.
var (
	firstRetry   = 500 * time.Millisecond
	longestRetry = 30 * time.Second
)

// patience is how an event has failed so far.
type patience struct {
	failures int         // in a row, without a sign that the channel or the workspace is to blame
	first    lanes.Tally // of its lane after the first of these
}

// failed counts a failure that the lane's tally has in it, and reports whether the event is to blame.
func (p *patience) failed(now lanes.Tally) (poisoned bool) {
	if p.failures++; p.failures == 1 {
		p.first = now
	}
	if p.failures < failuresToBlame {
		return false
	}
	own := uint64(p.failures - 1) // after the first
	succeeded := now.Posted - p.first.Posted
	tries := succeeded + now.Failed - p.first.Failed - own
	return succeeded > 0 && succeeded*oneInTries >= tries
}

// retryAfter is the backoff after so many failures of one event, 1 or more.
func retryAfter(failures int) time.Duration {
	return min(longestRetry, firstRetry<<min(failures-1, 10)) // more would overflow
}
