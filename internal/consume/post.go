package consume

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
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

// askAgainAfter is how old that answer may be when the post begins.
const askAgainAfter = time.Second

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
	settled := Settled{Event: a.event, Channel: w.poster.Channel(a.event), delivery: a.delivery}
	for {
		round, err := w.mayPost(ctx)
		if err != nil {
			return settled, errHandBack
		}
		if time.Since(a.asked) > askAgainAfter {
			decision, err := w.askAgain(ctx, &a)
			if err != nil {
				w.gate.rest(round, 0)
				return settled, errHandBack
			}
			if decision.Outcome != ratelimit.Admitted {
				w.gate.rest(round, 0)
				dropped := refused(a.event, a.delivery, decision)
				dropped.Attempts, dropped.Ambiguous = settled.Attempts, settled.Ambiguous
				return dropped, nil
			}
		}
		settled.Attempts++
		receipt, err := w.poster.Post(last, a.event)
		if err == nil {
			w.slackAnswered(round)
			settled.Latency = time.Since(a.event.Published)
			if receipt.Channel != "" {
				settled.Channel = receipt.Channel
			}
			settled.SlackTS = receipt.TS
			settled.Outcome = OutcomeSent
			// It fails only when this worker has to end. Even then the event is settled: handed back it would be posted
			// again. What is lost is the record by which a second event with its id would be a duplicate for long.
			_ = w.hold(last, waitRedis, func() error { return w.limiter.Sent(last, a.request) })
			return settled, nil
		}
		var failure *slackout.Error
		if !errors.As(err, &failure) {
			failure = &slackout.Error{Class: slackout.Ambiguous, Code: "unknown"}
		}
		if failure.Class == slackout.Ambiguous {
			settled.Ambiguous = true
		}
		if failure.Class == slackout.Rejected {
			w.slackAnswered(round)
			settled.Outcome, settled.Reason, settled.Detail = OutcomeDead, ReasonSlackRejected, failure.Code
			if err := w.giveUp(last, a, settled); err != nil {
				return settled, errHandBack
			}
			return settled, nil
		}
		if ctx.Err() != nil {
			w.gate.rest(round, 0)
			return settled, errHandBack
		}
		w.slackFailed(ctx, round, failure)
	}
}

// mayPost waits until no pause is on and this replica's gate lets a post through. Every call that succeeds is followed
// by one of slackAnswered, slackFailed or the gate's own rest.
func (w *Worker) mayPost(ctx context.Context) (round int, err error) {
	for {
		round, err = w.gate.enter(ctx)
		if err != nil {
			return 0, err
		}
		var rest time.Duration
		err = w.hold(ctx, waitRedis, func() (err error) {
			rest, err = w.pause.Remaining(ctx)
			return err
		})
		if err == nil && rest <= 0 {
			return round, nil
		}
		w.gate.rest(round, rest)
		if err != nil {
			return 0, err
		}
	}
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
	if failure.Class == slackout.RetryAfter {
		if err := w.pause.Extend(ctx, wait); err != nil {
			w.log.Warn("the other replicas could not be told to pause", zap.Error(err))
		}
	}
}

// askAgain asks whether an event that was held may still be posted. While its admission counts, the answer is yes and
// costs nothing; when it has outlived every window, the event is decided anew.
func (w *Worker) askAgain(ctx context.Context, a *admitted) (ratelimit.Decision, error) {
	decisions, err := w.decide(ctx, []ratelimit.Request{a.request})
	if err != nil {
		return ratelimit.Decision{}, err
	}
	a.asked = time.Now()
	return decisions[0], nil
}

// giveUp refunds an event that Slack has refused for good and puts it into the dead-letter stream. If an earlier
// attempt may have reached Slack, it may stand in the channel, and keeps its slot.
func (w *Worker) giveUp(ctx context.Context, a admitted, settled Settled) error {
	if !settled.Ambiguous {
		err := w.hold(ctx, waitRedis, func() error {
			_, err := w.limiter.Refund(ctx, a.request)
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.bury(ctx, []Settled{settled})
}
