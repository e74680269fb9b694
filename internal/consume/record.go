package consume

import (
	"context"

	"notifier/internal/outcome"
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

// recordRejected ends an event that Slack has refused for good: its letter is written, and then it is refunded and settled.
// If a post of it may have reached Slack, it may be in the channel, and keeps its slot.
//
// The refund comes last: until then the event is in flight with a post that has begun, and a worker that takes it over after
// a crash logs ambiguous. After it nothing is left by which that worker could know it, and it decides again.
func (w *Worker) recordRejected(_ context.Context, p *posting) error {
	p.settled.Outcome, p.settled.Reason = outcome.Dead, outcome.SlackRejected
	var refund func(context.Context) error
	if !p.settled.Ambiguous {
		refund = func(ctx context.Context) error { return w.refundOnce(ctx, p) }
	}
	w.letterbox.keep(p.settled, refund)
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
	return w.recordRejected(ctx, p)
}

// refundOnce makes one attempt to give an event its slots back.
func (w *Worker) refundOnce(ctx context.Context, p *posting) error {
	_, err := w.refund(ctx, p)
	if err != nil && ctx.Err() == nil {
		w.availability.lost(redisScripts, err)
	}
	return err
}

// refund gives an event its slots back, and reports whether there was anything to give back. A post that was permitted and not
// made, because Redis's answer was lost, is one whose end is known.
func (w *Worker) refund(ctx context.Context, p *posting) (refunded bool, err error) {
	refunded, err = w.limiter.Refund(ctx, p.request, p.last)
	if err == nil && !refunded && p.name != "" {
		refunded, err = w.limiter.Refund(ctx, p.request, p.name)
	}
	if err == nil {
		w.availability.recovered(redisScripts)
	}
	return refunded, err
}

// recordNothing ends an event that was dropped on its way: the script has stored nothing of it.
func recordNothing(context.Context, *posting) error { return nil }
