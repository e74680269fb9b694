package consume

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
)

// settle ends a batch of events. It is the only place that logs them, counts them and acknowledges them, in
// this order: a line that is written twice after a crash is better than an event that is unaccounted for.
//
// While the log cannot be written, settle waits, so its events are held. It returns an error only if ctx ends
// before the lines are written. The events are still in flight then.
func (w *Worker) settle(ctx context.Context, batch []*result.Result) error {
	if len(batch) == 0 {
		return nil
	}
	now := time.Now()
	lines := newLineWriter(w.eventLog(), w.settings.Group, now)
	for _, r := range batch {
		if r.Ended.IsZero() {
			r.Ended = now
		}
		r.Header = r.Delivery.Message.Header
		lines.write(r)
	}
	if err := w.untilLogged(ctx); err != nil {
		return err
	}
	crash.At(crash.AfterLog)
	if w.settings.Observe != nil {
		w.settings.Observe(batch)
	}
	w.acknowledge(batch)
	crash.At(crash.AfterAck)
	w.forgetPosts(ctx, batch)
	if w.republisher != nil {
		w.republisher.add(batch)
	}
	return nil
}

// forgetPosts removes the records of events that were refused after posts under an earlier admission: else they
// would pile up in Redis. It runs after the acknowledgement, because a redelivery needs them. If Redis fails, the
// records stay until admit.lua cleans up.
func (w *Worker) forgetPosts(ctx context.Context, batch []*result.Result) {
	for _, r := range batch {
		if r.Tier.Count == 0 || r.Attempts == 0 {
			continue
		}
		end := w.settings.Limiter.Forfeit
		if r.LastPost != "" && !r.Ambiguous { // admit.lua kept the slots for a post that was not made
			end = w.settings.Limiter.Refund
		}
		if _, err := end(ctx, decide.RequestOf(r), r.LastPost); err != nil {
			w.log.Debug("cannot remove the records of refused events", zap.Error(err))
			return
		}
	}
}

// untilLogged writes the lines of events, and tries again until that succeeds. It fails only if ctx ends.
func (w *Worker) untilLogged(ctx context.Context) error {
	return w.tracker.Retry(ctx, availability.Log, func() error {
		err := w.eventLog().Sync()
		if err != nil {
			w.stamp() // waiting is progress
		}
		return err
	})
}

// checkLog finds out whether the log can be written, also while no event needs it.
func (w *Worker) checkLog() {
	if err := w.eventLog().Sync(); err != nil {
		w.tracker.Lost(availability.Log, err)
	} else {
		w.tracker.Recovered(availability.Log)
	}
}

// acknowledge ends the events' deliveries. An acknowledgement that the connection has not taken is logged:
// the event is delivered again and is then a duplicate.
func (w *Worker) acknowledge(batch []*result.Result) {
	warn := func(err error) {
		if err != nil {
			w.log.Warn("cannot acknowledge", zap.Error(err))
		}
	}
	others := make([]*feed.Delivery, 0, len(batch))
	for _, r := range batch {
		if r.Outcome == outcome.Dead {
			warn(r.Delivery.Term(r.Reason))
		} else {
			others = append(others, r.Delivery)
		}
	}
	warn(w.feed.Ack(others...))
}

// eventLog writes the lines of settled events.
func (w *Worker) eventLog() *zap.Logger { return cmp.Or(w.settings.Events, w.log) }
