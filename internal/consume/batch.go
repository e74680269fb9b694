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
	w.decode(open)
	if err := w.decide(ctx, open); err != nil {
		return err
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

// decide takes the jobs through the steps of a decision. It repeats all steps until Redis replies, because
// events may be muted or expire meanwhile. It changes jobs, and returns an error only if ctx is done.
func (w *Worker) decide(ctx context.Context, jobs []*decide.Job) error {
	return w.tracker.Retry(ctx, availability.Redis, func() error {
		w.stamp() // waiting is progress
		for _, step := range []decide.Step{w.decider.Mute, w.decider.Age, w.decider.Admit} {
			jobs = decide.Open(jobs)
			if err := step(ctx, jobs); err != nil {
				return err
			}
		}
		return nil
	})
}

// decode reads the events. It passes those that can never be sent to the letters, which do not wait for Redis.
func (w *Worker) decode(jobs []*decide.Job) {
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
}
