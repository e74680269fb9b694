package post

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/slackout"
)

// Bounds of a search for a post whose end is unknown.
const (
	longestLookupPause = 5 * time.Second // how long a pause of Slack's history is waited out
	mostLookups        = 3               // and how often the history may fail
)

// lookUp searches the channel for an event whose last post may have arrived. The event goes on to its post
// when that has not, or when the channel cannot be searched: then it is posted again, and its line says
// ambiguous.
func (a *attempt) lookUp() verdict {
	if !a.unsure {
		return next()
	}
	receipt, found, err := a.Slack.Find(a.startCtx, a.Event)
	if err == nil {
		a.unsure = false
		if !found {
			return next()
		}
		a.inSlack(receipt)
		a.result.Found = true
		return a.endSent()
	}
	if a.startCtx.Err() != nil {
		return againAfter(0)
	}
	a.searches++
	var failure *slackout.Error
	switch {
	case !errors.As(err, &failure), a.searches > mostLookups, failure.RetryAfter > longestLookupPause:
		a.lookups.impossible(a.Log, err)
		a.unsure = false
		return next()
	case failure.Workspace: // no post would get through either, so this search is the probe
		a.closeGate(failure)
		return againAfter(0)
	default:
		// Reading is limited separately, for some apps to once a minute, and can fail while posting works. That is
		// no reason for other posts to wait.
		return againAfter(max(failure.RetryAfter, retryAfter(a.searches)))
	}
}

// lookups remembers which reasons against searching a channel were logged.
type lookups struct {
	mu     sync.Mutex
	logged map[string]bool
}

// impossible logs each reason once. The reasons are a few error codes; how long Slack asks to wait makes no
// difference.
func (l *lookups) impossible(log *zap.Logger, reason error) {
	what := reason.Error()
	var failure *slackout.Error
	if errors.As(reason, &failure) {
		what = failure.Code
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged == nil {
		l.logged = map[string]bool{}
	}
	if !l.logged[what] {
		l.logged[what] = true
		log.Warn("cannot look up whether an ambiguous post has arrived; posting it again", zap.Error(reason))
	}
}
