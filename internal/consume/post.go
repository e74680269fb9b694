package consume

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// admitted is an event that the script has let through and that is on its way to Slack.
type admitted struct {
	event    event.Event
	delivery *delivery
	request  ratelimit.Request
	asked    time.Time // when the script last said that it may be posted
}

// posting is an admitted event and what is known of its outcome so far.
type posting struct {
	admitted
	settled Settled
	last    string // name of the last post of it whose end is known, or that was looked for
	unsure  bool   // a post of it may have arrived, and nobody has looked since
	looks   int    // how often Slack would not let us look, before this post
}

// errHandBack ends the way of an event without an outcome: this worker stops, and the event is left for redelivery.
var errHandBack = errors.New("left for redelivery")

// postAll posts admitted events until the channel is closed. No post begins after ctx has ended; one that is under way
// may go on until last ends, because a post that is cut off may have reached Slack and would come again.
func (w *Worker) postAll(ctx, last context.Context) {
	for a := range w.posts {
		settled, err := w.deliver(ctx, last, a)
		if err != nil {
			continue // the hand gives it back at the end
		}
		w.settle([]Settled{settled})
	}
}

// deliver takes one admitted event to its outcome, however long Slack or Redis are away. It fails only when ctx ends;
// see postAll for last.
func (w *Worker) deliver(ctx, last context.Context, a admitted) (Settled, error) {
	p := &posting{admitted: a, settled: Settled{
		Event: a.event, Channel: w.poster.Channel(a.event), Decided: a.asked, delivery: a.delivery,
	}}
	for {
		round, err := w.gate.enter(ctx)
		if err != nil {
			return p.settled, errHandBack
		}
		way, err := w.approach(ctx, p, round)
		switch {
		case err != nil:
			return p.settled, errHandBack
		case way == lookAgain:
			continue
		case way == elsewhere:
			return p.settled, nil
		case way == alreadyThere:
			return w.sent(last, p)
		case way == closedChannel:
			return w.giveUp(last, p)
		}
		p.settled.Attempts++
		p.settled.Posted = time.Now()
		receipt, err := w.poster.Post(last, a.event)
		failure := postFailure(err)
		if way == probe && (failure == nil || failure.Class != slackout.RetryAfter) {
			w.lift(last)
		}
		switch {
		case failure == nil:
			crash(afterPost)
			w.slackAnswered(round)
			w.channels.take(p.settled.Channel)
			p.note(receipt)
			return w.sent(last, p)
		case failure.Class == slackout.Rejected:
			w.slackAnswered(round)
			if failure.ChannelRefused {
				w.channels.refuse(p.settled.Channel, failure.Code)
			}
			p.settled.Detail = failure.Code
			return w.giveUp(last, p)
		case failure.Class == slackout.Ambiguous:
			p.settled.Ambiguous = true
		}
		p.unsure, p.looks = p.settled.Ambiguous, 0 // before the next post it may be possible to look
		if ctx.Err() != nil {
			w.tellPause(last, failure, failure.RetryAfter)
			w.gate.rest(round, 0)
			return p.settled, errHandBack
		}
		w.slackFailed(ctx, round, failure)
	}
}

// postFailure is the error of a post as what it always is.
func postFailure(err error) *slackout.Error {
	var failure *slackout.Error
	if err != nil && !errors.As(err, &failure) {
		failure = &slackout.Error{Class: slackout.Ambiguous, Code: "unknown"}
	}
	return failure
}

// note takes over what Slack says of the message.
func (p *posting) note(receipt slackout.Receipt) {
	p.settled.Latency = time.Since(p.event.Published)
	if receipt.Channel != "" {
		p.settled.Channel = receipt.Channel
	}
	p.settled.SlackTS = receipt.TS
}

// sent records that the event is in Slack.
func (w *Worker) sent(ctx context.Context, p *posting) (Settled, error) {
	p.settled.Outcome = outcome.Sent
	// It fails only when this worker has to end. Even then the event is settled: handed back it would be posted again.
	// What is lost is the record by which a second event with its id would be a duplicate for long.
	_ = w.hold(ctx, waitRedis, func() error { return w.limiter.Sent(ctx, p.request) })
	crash(afterRecord)
	return p.settled, nil
}

// giveUp puts an event that Slack has refused for good into the dead-letter stream and refunds it. If a post of it may have
// reached Slack, it may stand in the channel, and keeps its slot.
//
// The refund comes last: until then the event is in flight with a post that has begun, and a worker that takes it over after
// a crash says ambiguous. After it nothing is left by which that one could know it, and it decides anew.
func (w *Worker) giveUp(ctx context.Context, p *posting) (Settled, error) {
	p.settled.Outcome, p.settled.Reason = outcome.Dead, outcome.SlackRejected
	if err := w.bury(ctx, []Settled{p.settled}); err != nil {
		return p.settled, errHandBack
	}
	if !p.settled.Ambiguous {
		err := w.hold(ctx, waitRedis, func() error {
			_, err := w.limiter.Refund(ctx, p.request)
			return err
		})
		if err != nil {
			return p.settled, errHandBack
		}
	}
	return p.settled, nil
}

func (w *Worker) slackAnswered(round int) {
	if w.gate.passed(round) {
		w.waits.end(waitSlack)
		w.waits.end(waitCredentials)
	}
}

// slackFailed closes the gate for as long as Slack asks or the backoff says, and tells the other replicas when
// Slack has asked for it.
func (w *Worker) slackFailed(ctx context.Context, round int, failure *slackout.Error) {
	what := waitSlack
	if failure.Class == slackout.Credentials {
		what = waitCredentials
	}
	wait := w.gate.failed(round, failure.RetryAfter)
	w.waits.begin(what, failure)
	w.tellPause(ctx, failure, wait)
}

// tellPause tells the other replicas that Slack has asked to wait.
func (w *Worker) tellPause(ctx context.Context, failure *slackout.Error, wait time.Duration) {
	if failure.Class != slackout.RetryAfter || wait <= 0 {
		return
	}
	if err := w.pause.Extend(ctx, wait); err != nil {
		w.log.Warn("the other replicas could not be told to pause", zap.Error(err))
	}
}

// lift tells the other replicas that the probe after a pause went well. If it cannot, the next probe does.
func (w *Worker) lift(ctx context.Context) {
	if err := w.pause.Lift(ctx); err != nil {
		w.log.Warn("the other replicas could not be told that the pause is over", zap.Error(err))
	}
}
