package consume

import (
	"time"

	"notifier/internal/slackout"
	"notifier/internal/wait"
)

// An event that Slack fails to take while it takes others is poisoned: a front end refuses its content with a page of HTML, or
// it makes Slack answer internal_error each time. One failure of that kind proves nothing, because Slack has such incidents. So
// the event waits in its lane while others are tried, and only when another event has been posted since its first failure,
// and it fails again, is the event itself to blame.

// failuresToBlame is how often an event has to fail after that proof.
const failuresToBlame = 4

// Bounds of an event's own backoff after a failure that nothing explains.
var (
	firstRetry   = 500 * time.Millisecond
	longestRetry = 15 * time.Second
)

// unexplained is what becomes of an event after a failed post. Failures that blame its channel or the workspace do not count
// against it.
func (w *Worker) unexplained(p *posting, t *turn, failure *slackout.Error) result {
	if failure.Workspace || failure.Class == slackout.RetryAfter || failure.Class == slackout.Credentials {
		return result{}
	}
	if p.failures == 0 {
		p.passed = t.PassedNow()
	} else if t.Passed > p.passed {
		p.blamed++
	}
	p.failures++
	if p.blamed >= failuresToBlame {
		p.settled.Detail = failure.Code
		return result{finish: w.recordUndeliverable}
	}
	return result{wait: wait.Jitter(retryAfter(p.failures))}
}

// retryAfter is the backoff after so many failures of one event, 1 or more.
func retryAfter(failures int) time.Duration {
	return min(longestRetry, firstRetry<<min(failures-1, 10)) // more would overflow
}
