package consume

import (
	"context"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// How an event's way ends: what is recorded of it in Redis and in the dead-letter stream before it is settled.

// recordSent records that the event is in Slack. It fails only when this worker has to end. Even then the event is settled:
// returned to the server it would be posted again. What is lost is the record by which a second event with its id would be
// a duplicate for long.
func (w *Worker) recordSent(ctx context.Context, p *posting) error {
	_ = w.hold(ctx, redisScripts, func() error { return w.limiter.Sent(ctx, p.request) })
	crash(afterRecord)
	return nil
}

// recordRejected ends an event that Slack has rejected because of the message. It keeps its slots: else a
// publisher of such messages would post without end.
func (w *Worker) recordRejected(_ context.Context, p *posting) error {
	return w.rejectedFor(p, w.limiter.Forfeit)
}

// recordRefused ends an event that Slack has refused because of its channel. It is refunded.
func (w *Worker) recordRefused(_ context.Context, p *posting) error {
	return w.rejectedFor(p, w.limiter.Refund)
}

// rejectedFor ends an event that Slack has refused for good: its letter is written, then it is refunded or
// forfeits its slots, and then it is settled. If a post of it may have reached Slack, it may be in the
// channel, and keeps its slots and its id.
//
// The record in Redis goes last: until then the event is in flight with a post that has begun, and a worker
// that takes it over after a crash logs ambiguous. After it nothing is left by which that worker could know
// it, and it decides again.
func (w *Worker) rejectedFor(p *posting, end giveUp) error {
	p.settled.Outcome, p.settled.Reason = outcome.Dead, outcome.SlackRejected
	var after func(context.Context) error
	if !p.settled.Ambiguous {
		after = func(ctx context.Context) error { return w.endOnce(ctx, p, end) }
	}
	w.letterbox.keep(p.settled, after)
	return errLetterPending
}

// recordUndeliverable ends an event that Slack keeps failing on: its letter is written. It keeps its slot, because one of its
// posts may be in the channel.
func (w *Worker) recordUndeliverable(_ context.Context, p *posting) error {
	p.settled.Outcome, p.settled.Reason = outcome.Dead, outcome.Undeliverable
	w.letterbox.keep(p.settled, nil)
	return errLetterPending
}

// recordRefusedChannel ends an event whose channel refuses every message at the moment, with Slack's latest code.
func (w *Worker) recordRefusedChannel(ctx context.Context, p *posting) error {
	p.settled.Detail = w.refused.code(p.channel)
	return w.recordRefused(ctx, p)
}

// giveUp ends an event in flight that is not in Slack: Limiter.Refund or Limiter.Forfeit.
type giveUp func(ctx context.Context, request ratelimit.Request, known string) (bool, error)

// endOnce makes one attempt to end an event that is not in Slack.
func (w *Worker) endOnce(ctx context.Context, p *posting, end giveUp) error {
	_, err := w.end(ctx, p, end)
	if err != nil && ctx.Err() == nil {
		w.availability.lost(redisScripts, err)
	}
	return err
}

// refund gives an event its slots back, and reports whether there was anything to give back.
func (w *Worker) refund(ctx context.Context, p *posting) (refunded bool, err error) {
	return w.end(ctx, p, w.limiter.Refund)
}

// end ends an event in flight, and reports whether it was. A post that was permitted and not made, because
// Redis's answer was lost, is one whose end is known.
func (w *Worker) end(ctx context.Context, p *posting, end giveUp) (ended bool, err error) {
	ended, err = end(ctx, p.request, p.last)
	if err == nil && !ended && p.name != "" {
		ended, err = end(ctx, p.request, p.name)
	}
	if err == nil {
		w.availability.recovered(redisScripts)
	}
	return ended, err
}

// recordNothing ends an event that was dropped on its way: the script has stored nothing of it.
func recordNothing(context.Context, *posting) error { return nil }
