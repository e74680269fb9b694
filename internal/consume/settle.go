package consume

import (
	"cmp"

	"go.uber.org/zap"

	"notifier/internal/consume/crash"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/outcome"
)

// settle ends a batch of events. It is the only place that logs them, counts them and acknowledges them, in
// this order: a line that is written twice after a crash is better than an event that is unaccounted for.
func (w *Worker) settle(batch []*result.Result) {
	if len(batch) == 0 {
		return
	}
	lines := newLineWriter(w.eventLog(), w.settings.Group)
	for _, r := range batch {
		r.Header = r.Delivery.Header
		lines.write(r)
	}
	// The lines are on their way before any acknowledgement is; a broken log is no reason to stop.
	_ = w.eventLog().Sync()
	crash.At(crash.AfterLog)
	if w.settings.Observe != nil {
		w.settings.Observe(batch)
	}
	w.acknowledge(batch)
	crash.At(crash.AfterAck)
	if w.republisher != nil {
		w.republisher.add(batch)
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
