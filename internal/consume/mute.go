package consume

import (
	"context"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// An event of a muted category is dropped as soon as it has arrived, without a call of Redis. One that is admitted already, and
// whose post has not begun, is dropped when its turn comes, and gives its slots back first. One whose post has begun goes on: it
// may be in Slack.
//
// Only a redelivery can be admitted already, so only redeliveries are looked up. If the consumer was deleted, its successor delivers every
// event as new: one that a dead worker had admitted is then dropped without a refund, and its slot stays taken until it leaves the
// window. Looking up every muted event instead would make Redis pay for each storm that is muted.

// muteOf is the mute of an event's category; nil: it is not muted.
func (w *Worker) muteOf(ev event.Event) *steering.Order {
	if w.settings.Mutes == nil {
		return nil
	}
	mute, muted := w.settings.Mutes.Muted(ev.Category)
	if !muted {
		return nil
	}
	return mute
}

func mutedEvent(ev event.Event, d *delivery, mute *steering.Order) Settled {
	return Settled{Event: ev, Outcome: outcome.Dropped, Reason: outcome.Muted, Mute: mute, delivery: d}
}

// dropMuted takes out of a batch the muted events that may have been decided before: such an event may be admitted, and then gives
// its slots back. It goes on where a post of it has begun, and where it was sent: then it is a duplicate. It fails only when ctx ends.
func (w *Worker) dropMuted(ctx context.Context, settled []Settled, candidates []admitted, requests []ratelimit.Request) (
	[]Settled, []admitted, []ratelimit.Request, error,
) {
	kept := 0
	for i, c := range candidates {
		if mute := w.muteOf(c.event); mute != nil && c.delivery.redelivered {
			posted, err := w.mayBePosted(ctx, c.request)
			if err != nil {
				return settled, candidates, requests, err
			}
			if !posted {
				settled = append(settled, mutedEvent(c.event, c.delivery, mute))
				continue
			}
		}
		candidates[kept], requests[kept] = c, requests[i]
		kept++
	}
	return settled, candidates[:kept], requests[:kept], nil
}

// mayBePosted gives back the slots of an event that may be admitted, and reports whether a post of it may have begun instead.
func (w *Worker) mayBePosted(ctx context.Context, request ratelimit.Request) (posted bool, err error) {
	var refunded bool
	err = w.hold(ctx, redisScripts, func() (err error) {
		refunded, err = w.limiter.Refund(ctx, request, "")
		return err
	})
	if err != nil || refunded {
		return false, err
	}
	record, sent, err := w.known(ctx, request)
	if err != nil || record != nil { // after an error the script is asked, as ever
		return err != nil || record.Delivery == request.Delivery, nil
	}
	return sent, nil
}

// known is what Redis knows of an event: its record if it is in flight, else nil and whether it was sent.
func (w *Worker) known(ctx context.Context, request ratelimit.Request) (record *ratelimit.InFlight, sent bool, err error) {
	found, inFlight, err := w.limiter.InFlight(ctx, request)
	if err != nil {
		return nil, false, err
	}
	if inFlight {
		return &found, false, nil
	}
	sent, err = w.limiter.WasSent(ctx, request)
	return nil, sent, err
}

// mute drops an admitted event that has been muted while it waited, and gives its slots back. It goes on to the post (nil) when
// there is nothing to give back and the event is known: then another replica may be posting it. One that is not known was refunded by a call
// whose answer was lost.
func (w *Worker) mute(ctx context.Context, p *posting) *result {
	mute := w.muteOf(p.event)
	if mute == nil || p.settled.Ambiguous { // it may be in the channel
		return nil
	}
	refunded, err := w.refund(ctx, p)
	if err != nil {
		return w.redisFailed(ctx, err)
	}
	if !refunded {
		if record, sent, err := w.known(ctx, p.request); err != nil || record != nil || sent {
			return nil
		}
	}
	p.settled.Outcome, p.settled.Reason, p.settled.Mute = outcome.Dropped, outcome.Muted, mute
	return endWith(recordNothing)
}
