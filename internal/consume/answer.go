package consume

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// What Slack's answer to a post means: for the event, for its channel, for the whole workspace, and for the other replicas.

// accepted is for a post that is made.
func (w *Worker) accepted(ctx context.Context, p *posting, t *turn, name string, receipt slackout.Receipt) {
	p.inSlack(receipt) // first: it takes the time
	w.slackAnswered(t, true)
	w.refused.accepted(p.channel)
	w.recordAnswer(ctx, p, name, receipt.Channel, 0)
}

// refusedOrFailed is for a post that is not made, or may not be.
func (w *Worker) refusedOrFailed(startCtx, finishCtx context.Context, p *posting, t *turn, name string, failure *slackout.Error) result {
	if failure.Class == slackout.Rejected {
		w.slackAnswered(t, false)
		if failure.ChannelRefused {
			w.refused.rejected(p.channel, failure.Code)
		}
		w.recordAnswer(finishCtx, p, name, "", 0)
		p.settled.Detail = failure.Code
		return result{finish: w.recordRejected}
	}
	if startCtx.Err() != nil { // no further attempt here, but the other replicas need to know
		w.recordAnswer(finishCtx, p, name, "", waitAskedFor(failure, failure.RetryAfter))
		return result{}
	}
	closed := w.slackFailed(p, t, failure)
	scope, left := w.recordAnswer(finishCtx, p, name, "", waitAskedFor(failure, closed))
	switch {
	case scope == ratelimit.PausedWorkspace: // by Slack's limit for the workspace, as far as one can see
		t.PauseWorkspace(left)
		w.availability.lost(slackPosts, askedToWait(left))
	case failure.Class == slackout.RetryAfter:
		w.availability.channelLost(laneOf(p.channel), askedToWait(closed))
	}
	return w.unexplained(p, t, failure)
}

// waitAskedFor is how long the other replicas have to wait after a failed post of this one: after a refusal by Slack's limit
// as long as this replica does, after anything else not at all.
func waitAskedFor(failure *slackout.Error, closed time.Duration) time.Duration {
	if failure.Class != slackout.RetryAfter {
		return 0
	}
	return closed
}

// askedToWait is Slack's limit as a reason to wait.
type askedToWait time.Duration

func (a askedToWait) Error() string {
	return fmt.Sprintf("Slack asked to wait %.0f s", math.Ceil(time.Duration(a).Seconds()))
}

// slackAnswered notes that Slack answers posts in this channel. passed: this one is made.
func (w *Worker) slackAnswered(t *turn, passed bool) {
	proof := t.Succeeded(passed)
	if proof.Channel {
		w.availability.channelRecovered(laneOf(t.Item.channel))
	}
	if proof.Workspace {
		w.availability.recovered(slackPosts)
		w.availability.recovered(slackCredentials)
	}
}

// slackFailed closes the gate of the channel, or of all channels where the failure concerns them all, for as long as Slack
// asks or the backoff gives. It returns for how long it is closed.
func (w *Worker) slackFailed(p *posting, t *turn, failure *slackout.Error) (closed time.Duration) {
	switch {
	case failure.Class == slackout.Credentials:
		closed = t.WorkspaceFailed(failure.RetryAfter)
		w.availability.lost(slackCredentials, failure)
	case failure.Workspace:
		closed = t.WorkspaceFailed(failure.RetryAfter)
		w.availability.lost(slackPosts, failure)
	case failure.Class == slackout.RetryAfter: // Redis knows whether this is the channel's limit; see refusedOrFailed
		closed = t.ChannelFailed(failure.RetryAfter, true)
	default:
		closed = t.ChannelFailed(failure.RetryAfter, false)
		w.availability.channelLost(laneOf(p.channel), failure)
	}
	return closed
}

// recordAnswer records in Redis that Slack has answered a post: from then on it counts in the channel's pace, and if it was
// the probe after a pause, that pause is over. wait above 0: Slack has asked to wait, and all replicas pause the channel or
// the workspace. It returns what is paused, and for how long. An error is only logged: the next post makes up for it.
func (w *Worker) recordAnswer(ctx context.Context, p *posting, name, id string, wait time.Duration) (ratelimit.PauseScope, time.Duration) {
	scope, left, err := w.limiter.Answered(ctx, ratelimit.Answer{
		Channel: p.channel, ID: id, Name: name, RetryAfter: wait,
	})
	if err != nil && ctx.Err() == nil {
		w.log.Warn("cannot record Slack's answer for the other replicas", zap.Error(err))
	}
	return scope, left
}
