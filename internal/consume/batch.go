package consume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/post"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
)

// item is one event of a batch, and what is known of how it ends.
type item struct {
	result.Result
	fate fate
}

// fate is where an item goes from the batch.
type fate int

const (
	undecided fate = iota // to the limiter
	ended                 // to be settled
	dead                  // to a letter, and then to be settled
	admitted              // to Slack
)

func (it *item) drop(reason string) {
	it.fate, it.Outcome, it.Reason = ended, outcome.Dropped, reason
}

// request is the question whether the event may be sent.
func (it *item) request() ratelimit.Request {
	ev := &it.Event
	return ratelimit.Request{
		ID: ev.ID, Source: ev.IDSource, Delivery: it.Delivery.Token, Category: ev.Category, Cost: ev.Cost,
	}
}

// batch holds process's buffers, which are reused: in a storm they would be most of the garbage.
type batch struct {
	items    []item
	requests []ratelimit.Request
	settled  []*result.Result
}

// forget keeps the room, and nothing of what was in it: the largest batch would stay in memory.
func (b *batch) forget() {
	clear(b.items)
	clear(b.requests)
	clear(b.settled)
	b.items, b.requests, b.settled = b.items[:0], b.requests[:0], b.settled[:0]
}

// process is the way of a batch: decode, hand over what can never be sent, decide, pass on what is admitted,
// settle the rest. It fails only when ctx ends.
func (w *Worker) process(ctx context.Context, deliveries []*feed.Delivery) error {
	b := &w.batch
	defer b.forget()
	b.items = slices.Grow(b.items, len(deliveries))[:len(deliveries)]
	now := time.Now()
	for i, d := range deliveries {
		w.decode(&b.items[i], d, now)
	}
	w.offerLetters(b)
	if err := w.dropMuted(ctx, b.items); err != nil {
		return err
	}
	if err := w.decide(ctx, b); err != nil {
		return err
	}
	for i := range b.items {
		if it := &b.items[i]; it.fate == ended {
			b.settled = append(b.settled, &it.Result)
		}
	}
	w.settle(b.settled)
	return nil
}

// decode reads an event, and ends what needs no decision.
func (w *Worker) decode(it *item, d *feed.Delivery, now time.Time) {
	var rejection *event.Rejection
	it.Event, rejection = event.Decode(d.Message, w.settings.Rules)
	it.Delivery = d
	switch {
	case rejection != nil && rejection.Reason == outcome.Reply:
		it.drop(outcome.Reply)
		it.Detail = rejection.Detail
	case rejection != nil:
		it.fate, it.Outcome, it.Reason, it.Detail = dead, outcome.Dead, rejection.Reason, rejection.Detail
	// A redelivery may hold a slot, and is decided first.
	case post.TooOld(&it.Event, w.settings.MaxAge, now) && !d.Redelivered:
		it.drop(outcome.Expired)
	}
}

// offerLetters hands over what can never be sent. What gets no letter is to be settled with the batch.
func (w *Worker) offerLetters(b *batch) {
	for i := range b.items {
		if it := &b.items[i]; it.fate == dead && !w.letters.Offer(it.Result) {
			it.NoLetter = true
			b.settled = append(b.settled, &it.Result)
		}
	}
}

// decide asks the limiter about what is undecided, until it answers. What is admitted goes on to Slack. It
// fails only when ctx ends.
func (w *Worker) decide(ctx context.Context, b *batch) error {
	for i := range b.items {
		if b.items[i].fate == undecided {
			b.requests = append(b.requests, b.items[i].request())
		}
	}
	if len(b.requests) == 0 {
		return nil
	}
	var decisions []ratelimit.Decision
	err := w.untilRedis(ctx, func() (err error) {
		decisions, err = w.settings.Limiter.Admit(ctx, b.requests)
		return err
	})
	if err != nil {
		return err
	}
	w.checkClock()
	crash.At(crash.AfterVerdict)
	now, next := time.Now(), 0
	for i := range b.items {
		it := &b.items[i]
		if it.fate != undecided {
			continue
		}
		decision, request := decisions[next], b.requests[next]
		next++
		it.Decided = now
		if decision.Verdict == ratelimit.Admitted {
			it.fate = admitted
			w.sender.Add(post.Admitted{Event: it.Event, Delivery: it.Delivery, Request: request, At: now})
		} else {
			it.fate = ended
			refuse(&it.Result, decision)
		}
	}
	return nil
}

// refuse puts a decision other than Admitted into the words of an outcome.
func refuse(r *result.Result, decision ratelimit.Decision) {
	r.Outcome, r.Reason = outcome.Dropped, decision.Verdict.Reason()
	r.Tier, r.RetryAfter, r.Reserved = decision.Tier, decision.RetryAfter, decision.Reserved
	r.AtLeast, r.Never = decision.AtLeast && !decision.Never, decision.Never
}

// grossStep is how far the clock of Redis may be set back without a line in the log: what time
// synchronization does.
const grossStep = time.Second

// checkClock notes whether the clock of Redis was set back.
func (w *Worker) checkClock() {
	lag := w.settings.Limiter.ClockLag()
	if lag < grossStep {
		w.tracker.Recovered(availability.Clock)
		return
	}
	w.tracker.Lost(availability.Clock, fmt.Errorf(
		"the clock of Redis was set back by %s or more; windows stand still until it has caught up",
		lag.Round(time.Millisecond)))
}
