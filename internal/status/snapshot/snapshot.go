// Package snapshot reads something that costs another service work, once for all who ask for it at about the
// same time.
//
// It knows how old a result may be, how often is read, and who waits for whom. It does not know what is read.
package snapshot

import (
	"context"
	"time"
)

// retryAfter is how long a failed read counts: callers that come in the meantime get its error.
const retryAfter = time.Second

// Snapshot keeps the last result of a read. It is safe for concurrent use.
type Snapshot[T any] struct {
	read           func(ctx context.Context) (T, error)
	fresh, timeout time.Duration
	pause          time.Duration // between the beginnings of two reads; only where fresh is 0

	// has room for one: who is in it reads or looks; callers that arrive during a read get its result
	turn         chan struct{}
	begun, ended time.Time // of the last read; zero: there was none
	value        T
	err          error
}

// New returns a Snapshot without a result. read is called when a caller finds no result whose read began less
// than fresh ago, by one goroutine at a time, with a context that ends after timeout.
func New[T any](fresh, timeout time.Duration, read func(ctx context.Context) (T, error)) *Snapshot[T] {
	return &Snapshot[T]{read: read, fresh: fresh, timeout: timeout, turn: make(chan struct{}, 1)}
}

// NewShared returns a Snapshot that keeps no result: a caller gets that of a read that began after it asked,
// together with all others who had asked by then. Two reads begin pause after one another or later. The rest
// is as with New.
func NewShared[T any](pause, timeout time.Duration, read func(ctx context.Context) (T, error)) *Snapshot[T] {
	s := New(0, timeout, read)
	s.pause = pause
	return s
}

// Get returns the last result, or reads again if that is too old, and how long ago its read began. The error
// is that of the read; it counts for a second. A result serves all callers that wait for it, so ctx must not
// end with one of them.
func (s *Snapshot[T]) Get(ctx context.Context) (value T, age time.Duration, err error) {
	return s.GetFor(context.Background(), ctx)
}

// GetFor is Get for a caller that does not wait for others when its own context has ended; then the error is
// that of the context. A read that it has begun goes on, because others wait for it.
func (s *Snapshot[T]) GetFor(caller, ctx context.Context) (value T, age time.Duration, err error) {
	asked := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-caller.Done():
		return value, 0, caller.Err()
	}
	defer func() { <-s.turn }()
	if !s.counts(asked) {
		s.refresh(ctx)
	}
	return s.value, time.Since(s.begun), s.err
}

// counts reports whether the last result counts for a caller that came at the time asked.
func (s *Snapshot[T]) counts(asked time.Time) bool {
	switch {
	case s.ended.IsZero():
		return false
	case s.fresh == 0:
		return s.begun.After(asked)
	case s.ended.After(asked): // it was made while the caller waited, however long that took
		return true
	case s.err != nil:
		return time.Since(s.ended) < retryAfter
	default:
		return time.Since(s.begun) < s.fresh
	}
}

func (s *Snapshot[T]) refresh(ctx context.Context) {
	if s.pause > 0 && !s.begun.IsZero() {
		select { // callers that come in the meantime get the result, too
		case <-time.After(s.pause - time.Since(s.begun)):
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.begun = time.Now()
	s.value, s.err = s.read(ctx)
	s.ended = time.Now()
}
