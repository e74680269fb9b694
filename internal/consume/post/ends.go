package post

import (
	"context"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// What is recorded in Redis and in the dead-letter stream before an event is settled.

// endSent records that the event is in Slack. If this worker has to end before Redis answers, the event is
// settled all the same: handed back to the server it would be posted again. What is lost is the record by
// which a second event with its id would be a duplicate for long.
func (a *attempt) endSent() verdict {
	_ = a.Tracker.Retry(a.finishCtx, availability.Redis, func() error {
		return a.Limiter.Sent(a.finishCtx, a.Request)
	})
	crash.At(crash.AfterRecord)
	return end()
}

// endRejected ends an event that Slack has refused for good. Because of the message, it keeps its slots: else
// a publisher of such messages would post without end. Because of its channel, it is refunded.
func (a *attempt) endRejected(failure *slackout.Error) verdict {
	a.result.Detail = failure.Code
	if !failure.ChannelRefused {
		return a.endDead(outcome.SlackRejected, a.Limiter.Forfeit)
	}
	a.channels.rejected(a.channel, failure.Code)
	return a.endDead(outcome.SlackRejected, a.refundOrForfeit())
}

// endByChannel ends an event whose channel refuses every message at the moment, with Slack's latest code.
func (a *attempt) endByChannel() verdict {
	a.result.Detail = a.channels.code(a.channel)
	return a.endDead(outcome.SlackRejected, a.refundOrForfeit())
}

// endUndeliverable ends an event that Slack keeps failing on. It keeps its slots, because one of its posts
// may be in the channel.
func (a *attempt) endUndeliverable(failure *slackout.Error) verdict {
	a.result.Detail = failure.Code
	return a.endDead(outcome.Undeliverable, a.Limiter.Forfeit)
}

// giveUp ends an event in flight: Limiter.Refund, or Limiter.Forfeit, which leaves its slots taken. After
// either its letter can be replayed.
type giveUp func(ctx context.Context, request ratelimit.Request, known string) (bool, error)

// refundOrForfeit is for an event that Slack refuses because of its channel. One whose earlier post may have
// reached Slack may be in the channel, and keeps its slots.
func (a *attempt) refundOrForfeit() giveUp {
	if a.result.Ambiguous {
		return a.Limiter.Forfeit
	}
	return a.Limiter.Refund
}

// endDead has the event's letter written, then gives it up in Redis, and then has it settled.
//
// Redis comes last: until then the event is in flight with a post that has begun, and a worker that takes it
// over after a crash logs ambiguous. After it nothing is left by which that worker could know it, and it
// decides again.
func (a *attempt) endDead(reason string, giveUp giveUp) verdict {
	a.result.Outcome, a.result.Reason = outcome.Dead, reason
	sender, p := a.Sender, a.posting
	a.Letters.Keep(a.result, func(ctx context.Context) error {
		_, err := sender.giveUp(ctx, p, giveUp)
		if err != nil && ctx.Err() == nil {
			sender.Tracker.Lost(availability.Redis, err)
		}
		return err
	})
	return handOver()
}

// refund gives an event its slots back, and reports whether there was anything to give back.
func (a *attempt) refund(ctx context.Context) (refunded bool, err error) {
	return a.giveUp(ctx, a.posting, a.Limiter.Refund)
}

// giveUp gives up an event in flight, and reports whether it was in flight. A post that was permitted and not
// made, because Redis's answer was lost, is one whose end is known.
func (s *Sender) giveUp(ctx context.Context, p *posting, giveUp giveUp) (was bool, err error) {
	was, err = giveUp(ctx, p.Request, p.last)
	if err == nil && !was && p.name != "" {
		was, err = giveUp(ctx, p.Request, p.name)
	}
	if err == nil {
		s.Tracker.Recovered(availability.Redis)
	}
	return was, err
}
