package post

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/decide"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/slackout"
)

// Bounds of the search for a message of unknown fate.
const (
	maxHistoryPause = 5 * time.Second // a longer pause of Slack's history is not waited out
	maxSearches     = 3
)

// find searches the channel for an event that an earlier post may have left there. If the message is not
// there, or the channel cannot be searched, the event is posted again, and its line says ambiguous.
func (a *attempt) find(ctx context.Context, _ []*decide.Job) error {
	if !a.p.mustSearch {
		return nil
	}
	receipt, found, err := a.s.settings.Slack.Find(ctx, a.job.Result.Event)
	switch {
	case err == nil && found:
		a.p.mustSearch = false
		a.inSlack(receipt)
		a.job.Result.Found = true
		a.end.Signal = lanes.Posted // this search may have been the probe
		a.endSent()
	case err == nil:
		a.p.mustSearch = false
	case ctx.Err() != nil:
		a.job.Wait(0)
	default:
		a.notSearched(err)
	}
	return nil
}

// notSearched repeats the search later, or gives it up.
func (a *attempt) notSearched(err error) {
	var failure *slackout.Error
	explained := errors.As(err, &failure)
	if explained && failure.Workspace { // no post would get through either, so this search is the probe
		a.closeGate(failure)
		a.job.Wait(0)
		return
	}
	a.p.searches++
	if !explained || a.p.searches > maxSearches || failure.RetryAfter > maxHistoryPause {
		a.s.lookups.impossible(a.s.settings.Log, err)
		a.p.mustSearch = false
		return
	}
	// Slack limits reading separately, for some apps to once a minute. Other posts need not wait for that.
	a.job.Wait(max(failure.RetryAfter, a.p.nextRetry()))
}

// lookups remembers the logged reasons why a channel could not be searched.
type lookups struct {
	mu     sync.Mutex
	logged map[string]bool
}

// impossible logs each reason once. The reasons are a few error codes.
func (l *lookups) impossible(log *zap.Logger, reason error) {
	code := reason.Error()
	var failure *slackout.Error
	if errors.As(reason, &failure) {
		code = failure.Code
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged == nil {
		l.logged = map[string]bool{}
	}
	if !l.logged[code] {
		l.logged[code] = true
		log.Warn("cannot look up whether an ambiguous post has arrived; posting it again", zap.Error(reason))
	}
}
