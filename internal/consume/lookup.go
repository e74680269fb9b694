package consume

import (
	"context"
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

// lookUp searches the channel for an event whose last post may have arrived. It goes on to the post (nil) when that has
// not, or when the channel cannot be searched: then the event is posted again, and its line says ambiguous.
func (w *Worker) lookUp(ctx context.Context, p *posting, t *turn) *result {
	if !p.unsure {
		return nil
	}
	receipt, found, err := w.poster.Find(ctx, p.event)
	if err == nil {
		p.unsure = false
		if !found {
			return nil
		}
		p.inSlack(receipt)
		p.settled.Found = true
		return endWith(w.recordSent)
	}
	if ctx.Err() != nil {
		return tryAgainAfter(0)
	}
	p.lookups++
	var failure *slackout.Error
	switch {
	case !errors.As(err, &failure), p.lookups > mostLookups, failure.RetryAfter > longestLookupPause:
		w.lookups.impossible(w.log, err)
		p.unsure = false
		return nil
	case failure.Workspace: // no post would get through either, so this search is the probe
		w.slackFailed(p, t, failure)
		return tryAgainAfter(0)
	default:
		// Reading is limited separately, for some apps to once a minute, and can fail while posting works. That is no reason for
		// other posts to wait.
		return tryAgainAfter(max(failure.RetryAfter, retryAfter(p.lookups)))
	}
}

// lookups remembers which reasons against searching a channel were logged.
type lookups struct {
	mu     sync.Mutex
	logged map[string]bool
}

// impossible logs each reason once. The reasons are a few error codes; how long Slack asks to wait makes no difference.
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
