package post

import (
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/wait"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// What Slack's answer to a post means: for the event, for its channel, for the whole workspace, and for the
// other replicas.

// accepted is for a post that is made.
func (a *attempt) accepted(receipt slackout.Receipt) verdict {
	a.inSlack(receipt) // first: it takes the time
	a.slackAnswers(true)
	a.channels.accepted(a.channel)
	answer := a.answer()
	answer.Posted = true
	a.record(answer)
	return a.endSent()
}

// failed is for a post that is not made, or may not be.
func (a *attempt) failed(failure *slackout.Error) verdict {
	a.failure = failure.Code
	switch {
	case failure.Class == slackout.RetryAfter:
		a.limited(failure.RetryAfter)
		return againAfter(0)
	case failure.Class == slackout.Rejected:
		a.slackAnswers(false)
		a.record(a.answer())
		return a.endRejected(failure)
	case a.startCtx.Err() != nil: // no further attempt here
		a.record(a.answer())
		return againAfter(0)
	}
	a.closeGate(failure)
	a.record(a.answer())
	return a.unexplained(failure)
}

// limited is for a 429, which pauses the channel, and perhaps the workspace, in all replicas: for as long as
// Slack asks, or the backoff gives where it names no time. That gives nothing for a post that began before
// the gate last closed, and a wait of 0 would end the pause that the post was the probe of; hence the
// minimum.
func (a *attempt) limited(atLeast time.Duration) {
	answer := a.answer()
	answer.RetryAfter = a.turn.ChannelFailed(max(atLeast, laneBackoff.First), true)
	scope, left := a.record(answer)
	if scope == ratelimit.PausedWorkspace {
		a.turn.PauseWorkspace(left)
		a.Tracker.Lost(availability.Slack, askedToWait(left))
		return
	}
	a.Tracker.ChannelLost(laneOf(a.channel), askedToWait(answer.RetryAfter))
}

// askedToWait is Slack's limit as a reason to wait.
type askedToWait time.Duration

func (a askedToWait) Error() string {
	return fmt.Sprintf("Slack asked to wait %.0f s", math.Ceil(time.Duration(a).Seconds()))
}

// slackAnswers notes that Slack answers posts in this channel. posted: this one is made.
func (a *attempt) slackAnswers(posted bool) {
	proof := a.turn.Succeeded(posted)
	if proof.Channel {
		a.Tracker.ChannelRecovered(laneOf(a.channel))
	}
	if proof.Workspace {
		a.Tracker.Recovered(availability.Slack)
		a.Tracker.Recovered(availability.Credentials)
	}
}

// closeGate closes the gate of the channel, or of all channels where the failure concerns them all, for as
// long as Slack asks or the backoff gives.
func (a *attempt) closeGate(failure *slackout.Error) {
	switch {
	case failure.Class == slackout.Credentials:
		a.turn.WorkspaceFailed(failure.RetryAfter)
		a.Tracker.Lost(availability.Credentials, failure)
	case failure.Workspace:
		a.turn.WorkspaceFailed(failure.RetryAfter)
		a.Tracker.Lost(availability.Slack, failure)
	default:
		a.turn.ChannelFailed(failure.RetryAfter, false)
		a.Tracker.ChannelLost(laneOf(a.channel), failure)
	}
}

// unexplained is for an event whose post has failed for no reason that Slack names. Failures that blame its
// channel or the workspace do not count against it.
func (a *attempt) unexplained(failure *slackout.Error) verdict {
	if failure.Workspace || failure.Class == slackout.Credentials {
		return againAfter(0)
	}
	if a.patience.failed(a.turn.Tally()) {
		return a.endUndeliverable(failure)
	}
	return againAfter(wait.Jitter(retryAfter(a.patience.failures)))
}

func (a *attempt) answer() ratelimit.Answer {
	return ratelimit.Answer{Channel: a.channel, Name: a.last}
}

// record records in Redis what Slack has answered to a post: from then on it counts in the channel's pace,
// and pauses begin or end for all replicas. It returns what is paused, and for how long. An error is only
// logged: the next post makes up for it.
func (a *attempt) record(answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration) {
	scope, left, err := a.Limiter.Answered(a.finishCtx, answer)
	if err != nil && a.finishCtx.Err() == nil {
		a.Log.Warn("cannot record Slack's answer for the other replicas", zap.Error(err))
	}
	return scope, left
}
