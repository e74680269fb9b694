package post

import (
	"context"
	"errors"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/result"
	"notifier/internal/consume/wait"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// readmitAfter is how old the script's answer may be when the post begins.
const readmitAfter = time.Second

// Bounds of the lease of a post.
var (
	leaseMargin  = 2 * time.Second // beyond SLACK_TIMEOUT, for the record of a post
	leaseRecheck = time.Second     // between two looks at an event that another replica may be posting
)

// attempt is what one event does with its turn.
type attempt struct {
	*Sender
	*posting
	turn *turn

	startCtx  context.Context // bounds what comes before a post
	finishCtx context.Context // bounds a post and what is recorded after it
}

// run makes at most one post. It checks first that the event may still be posted, that it is not in Slack
// already, and that neither a pause nor the pace nor another replica prevents the post. It waits for nothing
// but the answers of Redis and Slack.
func (a *attempt) run() verdict {
	for _, step := range []func() verdict{a.readmit, a.lookUp, a.expire, a.mute, a.endRefused, a.begin, a.post} {
		if v := step(); v.kind != goOn {
			return v
		}
	}
	panic("post: the last step has no verdict")
}

// readmit asks the script again about an event that has waited. While its admission counts, the answer is yes
// and costs nothing; when it has outlived every window, the event is decided again.
func (a *attempt) readmit() verdict {
	if time.Since(a.At) <= readmitAfter {
		return next()
	}
	decisions, err := a.Limiter.Admit(a.startCtx, []ratelimit.Request{a.Request})
	if err != nil {
		return a.redisFailed(err)
	}
	// It is no recovery of Redis: one that is full still answers what only reads.
	a.CheckClock()
	a.At = time.Now()
	if decisions[0].Verdict == ratelimit.Admitted {
		return next()
	}
	was := a.result
	a.result = result.Result{
		Event: a.Event, Delivery: a.Delivery, Decided: a.At, Attempts: was.Attempts, Ambiguous: was.Ambiguous,
	}
	a.Refuse(&a.result, decisions[0])
	return end()
}

// expire drops an event that has become older than EVENT_MAX_AGE while it waited, and gives its slots back.
// The event goes on to its post when there is nothing to give back: then another replica may be posting it.
func (a *attempt) expire() verdict {
	if !TooOld(&a.Event, a.MaxAge, time.Now()) {
		return next()
	}
	if !a.result.Ambiguous { // else it may be in the channel, and keeps them
		refunded, err := a.refund(a.startCtx)
		if err != nil {
			return a.redisFailed(err)
		}
		if !refunded {
			return next()
		}
	}
	a.result.Outcome, a.result.Reason = outcome.Dropped, outcome.Expired
	return end()
}

// mute drops an event that has been muted while it waited, and gives its slots back. The event goes on to its
// post when there is nothing to give back and Redis knows it: then another replica may be posting it. One
// that is not known was refunded by a call whose answer was lost.
func (a *attempt) mute() verdict {
	mute := a.MuteOf(a.Event.Category)
	if mute == nil || a.result.Ambiguous { // it may be in the channel
		return next()
	}
	refunded, err := a.refund(a.startCtx)
	if err != nil {
		return a.redisFailed(err)
	}
	if !refunded {
		record, sent, err := Known(a.startCtx, a.Limiter, a.Request)
		if err != nil || record != nil || sent {
			return next()
		}
	}
	a.result.Outcome, a.result.Reason, a.result.Mute = outcome.Dropped, outcome.Muted, mute
	return end()
}

// endRefused ends an event whose channel refuses every message, without a permit, which would count in the
// pace. The event goes on to its permit when Redis does not have it as this worker knows it: the permit finds
// out whether another replica's post may have arrived.
func (a *attempt) endRefused() verdict {
	if !a.channels.closed(a.channel, a.replayed()) {
		return next()
	}
	record, found, err := a.Limiter.InFlight(a.startCtx, a.Request)
	if err != nil {
		return a.redisFailed(err)
	}
	known := record.Posts == 0 || record.LastName == a.last || record.LastName == a.name
	if !found || record.Delivery != a.Request.Delivery || !known {
		return next()
	}
	return a.endByChannel()
}

// replayed reports whether the event is a dead letter that was replayed.
func (a *attempt) replayed() bool { return len(a.Delivery.Header[outcome.HeaderEventID]) > 0 }

// begin asks Redis for a permit, which records the post before it is made and takes its place in the
// channel's pace.
func (a *attempt) begin() verdict {
	if a.name == "" {
		a.name = a.nextName()
	}
	asked := time.Now()
	permit, err := a.Limiter.Begin(a.startCtx, ratelimit.Post{
		Request: a.Request, Channel: a.channel, Known: a.last, Name: a.name, Longest: a.PostTimeout + leaseMargin,
	})
	if err != nil {
		return a.redisFailed(err) // it may be recorded: the next call has the same name
	}
	a.Tracker.Recovered(availability.Redis)
	if permit.Status != ratelimit.Granted {
		return a.notPermitted(permit)
	}
	if time.Since(asked) > readmitAfter {
		// This process stood still: the answer is out of date, and is asked for again.
		return againAfter(0)
	}
	a.last, a.name = a.name, ""
	if !a.channels.try(a.channel, a.replayed()) {
		return a.endByChannel()
	}
	return next()
}

// notPermitted is what an answer other than a permit leads to.
func (a *attempt) notPermitted(permit ratelimit.Permit) verdict {
	switch permit.Status {
	case ratelimit.WorkspacePaused:
		a.turn.PauseWorkspace(permit.Wait)
		if permit.Wait >= time.Second { // less is another replica's probe
			a.Tracker.Lost(availability.Slack, askedToWait(permit.Wait))
		}
	case ratelimit.ChannelPaused:
		a.turn.PauseChannel(permit.Wait)
		if permit.Wait >= time.Second {
			a.Tracker.ChannelLost(laneOf(a.channel), askedToWait(permit.Wait))
		}
	case ratelimit.Paced:
		a.turn.Pace(permit.Wait)
	case ratelimit.Leased:
		return againAfter(min(permit.Wait, leaseRecheck))
	case ratelimit.LastPostUnknown: // of a worker that has crashed, or lost the event to this one
		a.unsure, a.last, a.result.Ambiguous = true, permit.Last, true
		a.result.Attempts = max(a.result.Attempts, permit.Posts)
	default: // NotInFlight: settled by another replica, or older than its window
		a.At = time.Time{}
	}
	return againAfter(0)
}

// post makes the post.
func (a *attempt) post() verdict {
	a.result.Attempts++
	a.result.Posted = time.Now()
	receipt, err := a.Slack.Post(a.finishCtx, a.Event)
	if err == nil {
		crash.At(crash.AfterPost)
		return a.accepted(receipt)
	}
	var failure *slackout.Error
	if !errors.As(err, &failure) {
		failure = &slackout.Error{Class: slackout.Ambiguous, Code: "unknown"}
	}
	if failure.Class == slackout.Ambiguous {
		a.result.Ambiguous = true
	}
	a.unsure, a.searches = a.result.Ambiguous, 0 // before the next post it may be possible to search the channel
	return a.failed(failure)
}

// redisFailed notes that Redis has not answered, and has the attempt made again. Until then no other is made:
// it would fail in the same way.
func (a *attempt) redisFailed(err error) verdict {
	pause := wait.Jitter(availability.RetryPause)
	if a.startCtx.Err() == nil {
		a.Tracker.Lost(availability.Redis, err)
		a.lanes.Hold(pause)
	}
	// After others: should Redis fail for this event alone, it is not the only probe.
	return againAfter(pause + availability.RetryPause/2)
}

// inSlack takes over what Slack reports of the message.
func (a *attempt) inSlack(receipt slackout.Receipt) {
	a.result.Latency = time.Since(a.Event.Published)
	if receipt.Channel != "" {
		a.result.Channel = receipt.Channel
	}
	a.result.SlackTS = receipt.TS
	a.result.Outcome = outcome.Sent
}
