package post

import (
	"time"

	"github.com/cenkalti/backoff/v5"

	"notifier/internal/consume/post/lanes"
)

// An event that Slack fails to take while it takes others is poisoned: a front end refuses its content with a
// page of HTML, or Slack returns internal_error each time. A few failures prove nothing, because in a brown-
// out most posts fail. So the event is tried for four minutes or more, after growing pauses, and is to blame
// only if posts of other events of its channel came through meanwhile. Of those others the first try counts
// alone: several poisoned events, which all fail again and again, would make each other look like a brown-
// out.
const (
	failuresToBlame = 15 // in a row

	// minSuccess bounds the share of successful first tries of other events since the first failure: one in
	// five. In a worse brown-out, or without other events, the event is tried on.
	minSuccess = 5
)

// Bounds of an event's own backoff.
var (
	firstRetry = 500 * time.Millisecond
	maxRetry   = 25 * time.Second // up to 30 s with jitter
)

// patience counts an event's failures.
type patience struct {
	failures int         // in a row, without a sign that the channel or the workspace is to blame
	first    lanes.Tally // of the lane after the first of them
}

// failed counts a failure, and reports whether the event is to blame. The lane's tally does not include the
// failure yet. While the channel takes no other event, a failure says nothing about this one, so the count
// begins again with it.
func (p *patience) failed(lane lanes.Tally) bool {
	p.failures++
	switch {
	case p.failures == 1:
		p.first = lane
		p.first.Failed++ // this one
	case lane.Posted == p.first.Posted:
		p.failures, p.first = 1, lane
	}
	if p.failures < failuresToBlame {
		return false
	}
	succeeded, failed := lane.Posted-p.first.Posted, lane.Failed-p.first.Failed
	return succeeded*minSuccess >= succeeded+failed
}

// nextRetry returns the pause before the event's next try. It grows with each call.
func (p *posting) nextRetry() time.Duration {
	if p.backoff == nil {
		p.backoff = &backoff.ExponentialBackOff{
			InitialInterval: firstRetry, RandomizationFactor: 0.2, Multiplier: 2, MaxInterval: maxRetry,
		}
	}
	return p.backoff.NextBackOff()
}
