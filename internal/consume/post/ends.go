package post

import (
	"context"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/decide"
	"notifier/internal/outcome"
	"notifier/internal/slackout"
)

// endSent records that the event is in Slack. If the worker has to end before Redis replies, the event is
// settled all the same: handed back to the server it would be posted again. Only the record is lost by which
// a later event with its id is a duplicate.
func (a *attempt) endSent() {
	_ = a.s.settings.Tracker.Retry(a.finishCtx, availability.Redis, func() error {
		return a.s.settings.Limiter.Sent(a.finishCtx, a.job.Request)
	})
	crash.At(crash.AfterRecord)
	a.job.Verdict = decide.Verdict{Next: decide.End}
}

// endRejected ends an event that Slack refuses for good. If the message is the reason, the event keeps its
// slots: otherwise a publisher of such messages could post without end.
func (a *attempt) endRejected(failure *slackout.Error) {
	if !failure.ChannelRefused {
		a.endDead(outcome.SlackRejected, failure.Detail(), a.s.settings.Decider.Forfeit)
		return
	}
	a.s.channels.rejected(a.p.channel, failure.Code)
	a.endDead(outcome.SlackRejected, failure.Detail(), a.refundOrForfeit())
}

// endByChannel ends an event because its channel refuses every message, with Slack's latest code.
func (a *attempt) endByChannel() {
	a.endDead(outcome.SlackRejected, a.s.channels.code(a.p.channel), a.refundOrForfeit())
}

// endUndeliverable ends an event that Slack keeps failing on. The event keeps its slots, because one of its
// posts may be in the channel.
func (a *attempt) endUndeliverable(failure *slackout.Error) {
	a.endDead(outcome.Undeliverable, failure.Detail(), a.s.settings.Decider.Forfeit)
}

// giveUp ends an event in flight: Decider.Refund or Decider.Forfeit.
type giveUp func(ctx context.Context, job *decide.Job) (bool, error)

// refundOrForfeit refunds an event that Slack refuses because of its channel, unless an earlier post may be in
// the channel.
func (a *attempt) refundOrForfeit() giveUp {
	if a.job.Result.Ambiguous {
		return a.s.settings.Decider.Forfeit
	}
	return a.s.settings.Decider.Refund
}

// endDead stores the event's letter, gives the event up in Redis, and settles it. Redis comes after the letter:
// if the worker dies between the two, the event is still in flight, and the next worker takes it over. The
// other way round, the next worker would not know the event and decide again.
func (a *attempt) endDead(reason, detail string, giveUp giveUp) {
	job, tracker := a.job, a.s.settings.Tracker
	job.Bury(reason, detail)
	a.s.settings.Letters.Keep(job.Result, func(ctx context.Context) error {
		_, err := giveUp(ctx, job)
		if err != nil && ctx.Err() == nil {
			tracker.Lost(availability.Redis, err)
		}
		return err
	})
}
