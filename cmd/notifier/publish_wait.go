package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/internal/settings"
	"notifier/internal/term"
)

// Bounds of -timeout.
const (
	defaultWait = 30 * time.Second
	minWait     = time.Second
	maxWait     = time.Hour
)

// Time between two reads. It grows from the first to the second.
const (
	minPoll = 100 * time.Millisecond
	maxPoll = 2 * time.Second
)

// clockSkew bounds the difference between the clocks of a publisher and a worker.
const clockSkew = time.Minute

// waiter reads the outcome of one event.
type waiter struct {
	reader   *recent.Reader
	place    recent.Place
	category string
	id       string
	begun    time.Time
}

// newWaiter makes a waiter. It reads once: without permission to read, nothing is published. A missing stream is
// no error, because the first record creates it.
func newWaiter(
	ctx context.Context, connection *nats.Conn, s settings.NATS, category, id string,
) (*waiter, error) {
	place, err := recent.NewPlace(s.Stream, s.Pattern)
	if err != nil {
		return nil, fmt.Errorf("-wait: no outcomes are recorded: %w; nothing was published", err)
	}
	w := &waiter{
		reader: recent.NewReader(connection, place), place: place,
		category: category, id: id, begun: time.Now(),
	}
	if _, err := w.reader.Of(ctx, id, category); err != nil && !errors.Is(err, recent.ErrNoStream) {
		return nil, fmt.Errorf("%w; nothing was published", w.unreadable(err))
	}
	return w, nil
}

// unreadable explains an error of the reader.
func (w *waiter) unreadable(err error) error {
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("-wait may not read stream %s: %w; docs/publishing.md names the permission",
			w.place.Stream, err)
	}
	return fmt.Errorf("-wait cannot read stream %s: %w", w.place.Stream, err)
}

// await returns the outcome of the event with a sequence in the workers' stream. If the sequence is zero, which
// means unknown, the first outcome since newWaiter counts.
func (w *waiter) await(ctx context.Context, seq uint64, timeout time.Duration) (outcome.Record, error) {
	end := time.Now().Add(timeout)
	for pause := minPoll; ; pause = min(pause*3/2, maxPoll) {
		records, err := w.reader.Of(ctx, w.id, w.category)
		if found, ok := w.choose(records, seq); ok {
			return found, nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return outcome.Record{}, w.unreadable(cause)
		}
		left := time.Until(end)
		if left <= 0 {
			return outcome.Record{}, w.expired(err, timeout)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
		}
	}
}

// choose returns the outcome of the event. A redelivered event may have two: the second is a duplicate of the
// first.
func (w *waiter) choose(records []outcome.Record, seq uint64) (found outcome.Record, ok bool) {
	for _, r := range records {
		if seq != 0 && r.StreamSeq != seq {
			continue
		}
		if seq == 0 && r.Time.Before(w.begun.Add(-clockSkew)) {
			continue
		}
		if !ok || found.Reason == outcome.Duplicate {
			found, ok = r, true
		}
	}
	return found, ok
}

// expired explains why there is no outcome when the time is up.
func (w *waiter) expired(err error, timeout time.Duration) error {
	switch {
	case errors.Is(err, recent.ErrNoStream):
		return fmt.Errorf("no outcome after %s: stream %s does not exist, workers create it", timeout, w.place.Stream)
	case err != nil:
		return fmt.Errorf("no outcome after %s: %w", timeout, w.unreadable(err))
	}
	return fmt.Errorf("no outcome after %s: the event waits, or its outcome was not recorded; try \"notifier why %s\"",
		timeout, term.Printable(w.id))
}

// outcomeLine describes a record: "dropped category: 10/30m, room 2026-11-20T09:14:50Z".
func outcomeLine(r outcome.Record) string {
	text := strings.TrimSpace(r.Outcome + " " + r.Reason)
	if detail := recent.Detail(r); detail != "" {
		text += ": " + detail
	}
	return term.Printable(text)
}
