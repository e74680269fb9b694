package post

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// accepted ends an event after its post.
func (a *attempt) accepted(receipt slackout.Receipt) {
	a.inSlack(receipt) // first: it takes the time
	a.end.Signal = lanes.Posted
	a.s.channels.accepted(a.p.channel)
	a.endSent() // before any other call: a crash until then repeats the post
	a.record(ratelimit.Answer{Channel: a.p.channel, Name: a.job.LastPost, Posted: true})
}

// inSlack notes the message that Slack has.
func (a *attempt) inSlack(receipt slackout.Receipt) {
	r := &a.job.Result
	r.Latency = time.Since(r.Event.Published)
	r.SlackTS = receipt.TS
	r.Outcome = outcome.Sent
}

// failed handles a post that was not made, or may not have been.
func (a *attempt) failed(ctx context.Context, failure *slackout.Error) {
	a.p.failure = failure.Detail()
	if failure.Unmarked {
		a.s.settings.Log.Warn("cannot look up ambiguous posts until a restart, because Slack refuses metadata",
			zap.Error(failure))
	}
	a.job.Wait(0)
	switch {
	case failure.Class == slackout.RetryAfter:
		a.limited(failure.RetryAfter)
	case failure.Class == slackout.Rejected:
		a.end.Signal = lanes.Rejected
		a.record(a.failedAnswer())
		a.endRejected(failure)
	case ctx.Err() != nil: // the worker stops
		a.record(a.failedAnswer())
	default:
		pause := time.Duration(0)
		if failure.NotSlack() {
			pause = a.s.foreign.note(a.job.Result.Posted)
		}
		if pause > 0 {
			a.stopForeign(failure, pause)
		} else {
			a.closeGate(failure)
		}
		a.record(a.failedAnswer())
		if a.end.Signal == lanes.ChannelFailing {
			a.retry(failure)
		}
	}
}

// limited handles a 429. All workers pause the channel, and perhaps the workspace.
func (a *attempt) limited(retryAfter time.Duration) {
	tracker, asked := a.s.settings.Tracker, askedToWait(retryAfter)
	// The pause that this post was the probe of must not end with a 429 that names no time.
	retryAfter = max(retryAfter, laneBackoff.First)
	a.end.Signal, a.end.AtLeast = lanes.ChannelLimited, retryAfter
	answer := a.failedAnswer()
	answer.RetryAfter = retryAfter
	scope, left := a.record(answer)
	if scope == ratelimit.PausedWorkspace {
		a.end.Signal, a.end.AtLeast = lanes.WorkspacePaused, left
		tracker.Lost(availability.Slack, asked)
		return
	}
	tracker.ChannelLost(laneOf(a.p.channel), asked)
}

// askedToWait is a reason to wait: a 429 and its Retry-After. Zero means that it named no time.
type askedToWait time.Duration

func (a askedToWait) Error() string {
	if a == 0 {
		return ratelimit.AskedToWait + " and named no time"
	}
	return fmt.Sprintf("%s %s", ratelimit.AskedToWait, seconds(time.Duration(a)))
}

// pauseLeft is a reason to wait: what is left of a pause after a 429, perhaps of another worker's post.
type pauseLeft time.Duration

func (p pauseLeft) Error() string {
	return fmt.Sprintf("%s, %s left", ratelimit.AskedToWait, seconds(time.Duration(p)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", math.Ceil(d.Seconds())) }

// closeGate closes the gate of the channel, or of all channels if the failure concerns them all.
func (a *attempt) closeGate(failure *slackout.Error) {
	tracker := a.s.settings.Tracker
	a.end.Signal, a.end.AtLeast = lanes.WorkspaceFailing, failure.RetryAfter
	switch {
	case failure.Class == slackout.Credentials:
		tracker.Lost(availability.Credentials, failure)
	case failure.Workspace:
		tracker.Lost(availability.Slack, failure)
	default:
		a.end.Signal = lanes.ChannelFailing
		if a.turn.BlamesChannel() {
			tracker.ChannelLost(laneOf(a.p.channel), failure)
		}
	}
}

// stopForeign closes the gate of all channels, because the responses are not Slack's. The event waits apart,
// so that another one is the probe, even one that is only fetched after the pause. If this event provokes
// such a response, and others do not, they are not held up again.
func (a *attempt) stopForeign(failure *slackout.Error, pause time.Duration) {
	a.end.Signal, a.end.AtLeast = lanes.WorkspaceFailing, pause
	a.s.settings.Tracker.Lost(availability.Credentials, notSlack(failure, pause))
	a.job.Wait(a.p.nextRetry())
}

// retry gives the event another turn after a failure that Slack does not explain, unless the event is to
// blame.
func (a *attempt) retry(failure *slackout.Error) {
	if a.p.patience.failed(a.turn.Tally()) {
		a.endUndeliverable(failure)
		return
	}
	a.job.Wait(a.p.nextRetry())
}

// failedAnswer describes a failed post to the other workers. The failure is certain unless a post of the
// event was ambiguous.
func (a *attempt) failedAnswer() ratelimit.Answer {
	return ratelimit.Answer{
		Request: a.job.Request, Channel: a.p.channel, Name: a.job.LastPost, Failed: !a.job.Result.Ambiguous,
	}
}

// record records the result of a post in Redis: it counts in the channel's pace, and pauses begin or end for
// all workers. It returns the pause and its length. An error is only logged: until the next post, other
// workers then treat a failure as unknown.
func (a *attempt) record(answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration) {
	scope, left, err := a.s.settings.Limiter.Answered(a.finishCtx, answer)
	if err != nil && a.finishCtx.Err() == nil {
		a.s.settings.Log.Warn("cannot record Slack's answer for the other workers", zap.Error(err))
	}
	if answer.Failed {
		crash.At(crash.AfterFailure)
	}
	return scope, left
}
