package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// How long -wait waits.
const (
	defaultWait  = 30 * time.Second
	shortestWait = time.Second
	longestWait  = time.Hour
)

// How often it looks: soon at first, then less and less often.
const (
	soonest = 100 * time.Millisecond
	rarest  = 2 * time.Second
)

// lookBack is from when on outcomes are read: clocks may differ by less, and an event that was published
// before may have an earlier outcome.
const lookBack = time.Hour

// sameID bounds how many outcomes of events with one id are looked at.
const sameID = 100

// waiter looks for what became of one event, in the outcomes that workers record.
type waiter struct {
	reader *recent.Reader
	place  recent.Place
	filter recent.Filter
}

// newWaiter finds out whether outcomes can be read at all, before anything is published. It is no error that
// none are there yet: the first worker creates their stream.
func newWaiter(
	ctx context.Context,
	connection *nats.Conn,
	s settings.NATS,
	category, id string,
) (*waiter, error) {
	place, err := recent.NewPlace(s.Stream, s.Pattern)
	if err != nil {
		return nil, fmt.Errorf("-wait: no outcomes are recorded: %w; nothing was published", err)
	}
	w := &waiter{
		reader: recent.NewReader(connection, place), place: place,
		filter: recent.Filter{Category: category, EventID: id, Since: time.Now().Add(-lookBack), Limit: sameID},
	}
	if _, err := w.reader.List(ctx, w.filter); err != nil && !errors.Is(err, recent.ErrNoStream) {
		return nil, fmt.Errorf("%w; nothing was published", w.unreadable(err))
	}
	return w, nil
}

// unreadable explains an error of the reader.
func (w *waiter) unreadable(err error) error {
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf(
			"-wait may not read the outcomes in stream %s: %w; docs/publishing.md names the permission",
			w.place.Stream,
			err,
		)
	}
	return fmt.Errorf("-wait cannot read the outcomes in stream %s: %w", w.place.Stream, err)
}

// await returns what became of the event with a sequence in the stream that workers read; 0: the sequence is
// not known, and the latest event with the id counts. Of a duplicate it also returns the outcome of the event
// that was sent before; nil: it is not recorded. The error after the given time says what is known.
func (w *waiter) await(
	ctx context.Context, seq uint64, timeout time.Duration,
) (became recent.Outcome, first *recent.Outcome, err error) {
	end := time.Now().Add(timeout)
	for pause := soonest; ; pause = min(pause*3/2, rarest) {
		answer, err := w.reader.List(ctx, w.filter)
		if found, ok := choose(answer.Outcomes, seq); ok {
			return found, firstOf(answer.Outcomes, found), nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return recent.Outcome{}, nil, w.unreadable(cause)
		}
		left := time.Until(end)
		if left <= 0 {
			return recent.Outcome{}, nil, w.nothing(err, timeout)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
		}
	}
}

// choose returns the outcome of the event: an event that is delivered again can have a second one, which is a
// duplicate of the first.
func choose(outcomes []recent.Outcome, seq uint64) (found recent.Outcome, ok bool) {
	for _, o := range outcomes {
		if seq != 0 && o.StreamSeq != seq {
			continue
		}
		if !ok || found.Reason == outcome.Duplicate {
			found, ok = o, true
		}
	}
	return found, ok
}

// firstOf is the event that a duplicate repeats: the latest one that was sent. nil: it is none, or that is
// not recorded.
func firstOf(outcomes []recent.Outcome, o recent.Outcome) *recent.Outcome {
	if o.Reason != outcome.Duplicate {
		return nil
	}
	for _, first := range outcomes {
		if first.Outcome == outcome.Sent && first.Source == o.Source {
			return &first
		}
	}
	return nil
}

// nothing is why nothing is known when the time is up.
func (w *waiter) nothing(err error, timeout time.Duration) error {
	switch {
	case errors.Is(err, recent.ErrNoStream):
		return fmt.Errorf(
			"nothing is known after %s: there is no stream %s, in which a worker records outcomes",
			timeout,
			w.place.Stream,
		)
	case err != nil:
		return fmt.Errorf("nothing is known after %s: %w", timeout, w.unreadable(err))
	}
	return fmt.Errorf(
		"nothing is known after %s: it waits in the stream or is held, or its outcome was not recorded; \"notifier why %s\" and the log know more",
		timeout,
		term.Printable(w.filter.EventID),
	)
}

// outcomeLine is what became of an event, for people.
func outcomeLine(o recent.Outcome, first *recent.Outcome) string {
	known := o.Facts()
	if o.Reason == outcome.Duplicate {
		text := "not known: it is in flight, or was not recorded"
		if first != nil {
			text = fmt.Sprintf("sent %s; %s", stamp(first.Time), recent.Joined(first.Facts()))
		}
		known = append(known, recent.Fact{Name: "first", Text: text})
	}
	words := o.Outcome
	if o.Reason != "" {
		words += ", " + o.Reason
	}
	if details := recent.Joined(known); details != "" {
		words += "; " + details
	}
	return term.Printable(words)
}
