package consume

import (
	"context"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// An event of a muted category is dropped as soon as it has arrived, without a call of Redis. One that is
// admitted already, and whose post has not begun, is dropped when its turn comes (package post), and gives
// its slots back first. One whose post has begun goes on: it may be in Slack.
//
// Only a redelivery can be admitted already, so only redeliveries are looked up. If the consumer was deleted,
// its successor delivers every event as new: one that a dead worker had admitted is then dropped without a
// refund, and its slot stays taken until it leaves the window. Looking up every muted event instead would
// make Redis pay for each storm that is muted.

// muteOf is the mute of a category; nil: it is not muted.
func (w *Worker) muteOf(category string) *steering.Order {
	if w.settings.Mutes == nil {
		return nil
	}
	mute, muted := w.settings.Mutes.Muted(category)
	if !muted {
		return nil
	}
	return mute
}

// dropMuted drops a batch's muted events, including redelivered ones that may already have been admitted:
// these give their slots back first. An event goes on where a post of it has begun, and where it was sent:
// then it is a duplicate. It fails only when ctx ends.
func (w *Worker) dropMuted(ctx context.Context, items []item) error {
	for i := range items {
		it := &items[i]
		if it.fate != undecided {
			continue
		}
		mute := w.muteOf(it.Event.Category)
		if mute == nil {
			continue
		}
		if it.Delivery.Redelivered {
			goesOn, err := w.refundUnlessPosted(ctx, it.request())
			if err != nil {
				return err
			}
			if goesOn {
				continue
			}
		}
		it.drop(outcome.Muted)
		it.Mute = mute
	}
	return nil
}

// refundUnlessPosted gives back the slots of an event that may be admitted, and reports whether a post of it
// may have begun instead.
func (w *Worker) refundUnlessPosted(ctx context.Context, request ratelimit.Request) (posted bool, err error) {
	var refunded bool
	err = w.untilRedis(ctx, func() (err error) {
		refunded, err = w.settings.Limiter.Refund(ctx, request, "")
		return err
	})
	if err != nil || refunded {
		return false, err
	}
	record, sent, err := post.Known(ctx, w.settings.Limiter, request)
	if err != nil || record != nil { // after an error the script is asked, as ever
		return err != nil || record.Delivery == request.Delivery, nil
	}
	return sent, nil
}

// untilRedis repeats a call of the limiter until Redis answers. It fails only when ctx ends.
func (w *Worker) untilRedis(ctx context.Context, call func() error) error {
	return w.tracker.Retry(ctx, availability.Redis, func() error {
		w.stamp() // waiting is progress
		return call()
	})
}
