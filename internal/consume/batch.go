package consume

import (
	"context"
	"slices"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
)

// batch holds the buffers of process, which are reused: in a storm they would be most of the garbage.
type batch struct {
	jobs    []decide.Job
	open    []*decide.Job
	settled []*result.Result
}

// take makes a job of each delivery, in order.
func (b *batch) take(deliveries []*feed.Delivery) []*decide.Job {
	b.jobs = slices.Grow(b.jobs, len(deliveries))[:len(deliveries)]
	for i, delivery := range deliveries {
		b.jobs[i].Result.Delivery = delivery
		b.open = append(b.open, &b.jobs[i])
	}
	return b.open
}

// forget clears the buffers but keeps their capacity. Without clearing, the largest batch would stay
// reachable.
func (b *batch) forget() {
	clear(b.jobs)
	clear(b.open[:cap(b.open)])
	clear(b.settled)
	b.jobs, b.open, b.settled = b.jobs[:0], b.open[:0], b.settled[:0]
}

// process decides on a batch. It passes admitted events to the sender, in order, and ends the others. It
// returns an error only if ctx is done.
func (w *Worker) process(ctx context.Context, deliveries []*feed.Delivery) error {
	b := &w.batch
	defer b.forget()
	open := b.take(deliveries)
	for _, step := range []decide.Step{w.decode, w.decider.Mute, w.decider.Age, w.decider.Admit} {
		if err := w.untilRedis(ctx, step, open); err != nil {
			return err
		}
		open = decide.Open(open)
	}
	crash.At(crash.AfterVerdict)
	for i := range b.jobs {
		switch job := &b.jobs[i]; job.Verdict.Next {
		case decide.GoOn:
			w.sender.Add(*job)
		case decide.End:
			b.settled = append(b.settled, &job.Result)
		case decide.Dead: // the letters settle it
		default:
			panic("consume: an event that has just arrived waits")
		}
	}
	return w.settle(ctx, b.settled)
}

// untilRedis repeats a step until Redis replies. It returns an error only if ctx is done.
func (w *Worker) untilRedis(ctx context.Context, step decide.Step, jobs []*decide.Job) error {
	return w.tracker.Retry(ctx, availability.Redis, func() error {
		w.stamp() // waiting is progress
		return step(ctx, jobs)
	})
}

// decode reads the events. It passes those that can never be sent to the letters, which do not wait for Redis.
func (w *Worker) decode(_ context.Context, jobs []*decide.Job) error {
	for _, job := range jobs {
		r := &job.Result
		var rejection *event.Rejection
		r.Event, rejection = event.Decode(r.Delivery.Message, w.settings.Rules)
		switch {
		case rejection == nil:
			job.Request = decide.RequestOf(r)
		case rejection.Reason == outcome.Reply:
			job.Drop(outcome.Reply)
			r.Detail = rejection.Detail
		default:
			job.Bury(rejection.Reason, rejection.Detail)
			if !w.letters.Offer(job.Result) {
				r.NoLetter = true
				job.Verdict = decide.Verdict{Next: decide.End}
			}
		}
	}
	return nil
}
