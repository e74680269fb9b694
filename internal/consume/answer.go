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
	w.recordAnswer(ctx, ratelimit.Answer{Channel: p.channel, Name: name, Posted: true})
}

// refusedOrFailed is for a post that is not made, or may not be.
func (w *Worker) refusedOrFailed(startCtx, finishCtx context.Context, p *posting, t *turn, name string, failure *slackout.Error) result {
	answer := ratelimit.Answer{Channel: p.channel, Name: name}
	switch {
	case failure.Class == slackout.RetryAfter:
		w.limited(finishCtx, p, t, answer, failure.RetryAfter)
		return result{}
	case failure.Class == slackout.Rejected:
		w.slackAnswered(t, false)
		w.recordAnswer(finishCtx, answer)
		return w.rejected(p, failure)
	}
	if startCtx.Err() != nil { // no further attempt here
		w.recordAnswer(finishCtx, answer)
		return result{}
	}
	w.slackFailed(p, t, failure)
	w.recordAnswer(finishCtx, answer)
	return w.unexplained(p, t, failure)
}

// rejected is for a post that Slack refuses for good.
func (w *Worker) rejected(p *posting, failure *slackout.Error) result {
	p.settled.Detail = failure.Code
	if !failure.ChannelRefused {
		return result{finish: w.recordRejected}
	}
	w.refused.rejected(p.channel, failure.Code)
	return result{finish: w.recordRefused}
}

// limited is for a 429, which pauses the channel, and perhaps the workspace, in all replicas: for as long as
// Slack asks, or the backoff gives where it names no time. That gives nothing for a post that began before the gate last
// closed; a wait of 0 would end the pause that the post was the probe of, hence the minimum.
func (w *Worker) limited(ctx context.Context, p *posting, t *turn, answer ratelimit.Answer, atLeast time.Duration) {
	answer.RetryAfter = t.ChannelFailed(max(atLeast, laneBackoff.First), true)
	scope, left := w.recordAnswer(ctx, answer)
	if scope == ratelimit.PausedWorkspace {
		t.PauseWorkspace(left)
		w.availability.lost(slackPosts, askedToWait(left))
		return
	}
	w.availability.channelLost(laneOf(p.channel), askedToWait(answer.RetryAfter))
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
// asks or the backoff gives.
func (w *Worker) slackFailed(p *posting, t *turn, failure *slackout.Error) {
	switch {
	case failure.Class == slackout.Credentials:
		t.WorkspaceFailed(failure.RetryAfter)
		w.availability.lost(slackCredentials, failure)
	case failure.Workspace:
		t.WorkspaceFailed(failure.RetryAfter)
		w.availability.lost(slackPosts, failure)
	default:
		t.ChannelFailed(failure.RetryAfter, false)
		w.availability.channelLost(laneOf(p.channel), failure)
	}
}

// recordAnswer records in Redis what Slack has answered to a post: from then on it counts in the channel's
// pace, and pauses begin or end for all replicas. It returns what is paused, and for how long. An error is
// only logged: the next post makes up for it.
func (w *Worker) recordAnswer(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration) {
	scope, left, err := w.limiter.Answered(ctx, answer)
	if err != nil && ctx.Err() == nil {
		w.log.Warn("cannot record Slack's answer for the other replicas", zap.Error(err))
	}
	return scope, left
}
