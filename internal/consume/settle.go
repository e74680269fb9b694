package consume

import (
	"cmp"

	"go.uber.org/zap"

	"notifier/internal/consume/crash"
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
	for _, r := range batch {
		w.acknowledge(r)
	}
	crash.At(crash.AfterAck)
	if w.republisher != nil {
		w.republisher.add(batch)
	}
}

// acknowledge ends an event's delivery. An acknowledgement that the connection has not taken is logged: the
// event is delivered again and is then a duplicate.
func (w *Worker) acknowledge(r *result.Result) {
	var err error
	if r.Outcome == outcome.Dead {
		err = r.Delivery.Term(r.Reason)
	} else {
		err = r.Delivery.Ack()
	}
	if err != nil {
		w.log.Warn("cannot acknowledge", zap.Error(err))
	}
}

// eventLog writes the lines of settled events.
func (w *Worker) eventLog() *zap.Logger { return cmp.Or(w.settings.Events, w.log) }
