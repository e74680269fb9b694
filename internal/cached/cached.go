// Package cached reads a value that costs another service work, once for all callers that need it at about the
// same time. It bounds the age of a result and the rate of reads.
package cached

import (
	"context"
	"time"
)

// retryAfter is the age up to which callers get the error of a failed read.
const retryAfter = time.Second

// Value keeps the last result of a read. It is safe for concurrent use.
type Value[T any] struct {
	read           func(ctx context.Context) (T, error)
	fresh, timeout time.Duration
	pause          time.Duration // between the beginnings of two reads, if fresh is 0

	turn         chan struct{} // a lock for the fields below that a caller can stop waiting for
	begun, ended time.Time     // of the last read; zero before the first
	value        T
	err          error
}

// New returns a Value without a result. If no read has begun within fresh, a caller starts one. At most one read
// runs at a time, and its context ends after timeout.
func New[T any](fresh, timeout time.Duration, read func(ctx context.Context) (T, error)) *Value[T] {
	return &Value[T]{read: read, fresh: fresh, timeout: timeout, turn: make(chan struct{}, 1)}
}

// NewShared returns a Value that keeps no result: callers share a read that begins after their calls. Two reads
// begin at least pause apart. New explains timeout and read.
func NewShared[T any](pause, timeout time.Duration, read func(ctx context.Context) (T, error)) *Value[T] {
	s := New(0, timeout, read)
	s.pause = pause
	return s
}

// Get returns the last result, or reads again if it is too old. The result of a read serves all callers that wait
// for it, so ctx must not end with one of them. The error of a read is kept for a second.
func (s *Value[T]) Get(ctx context.Context) (T, error) { return s.GetFor(context.Background(), ctx) }

// GetFor is Get for a caller that may stop waiting for another one's read: then it returns the error of its
// context. A read that the caller itself has begun continues.
func (s *Value[T]) GetFor(caller, ctx context.Context) (value T, err error) {
	called := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-caller.Done():
		return value, caller.Err()
	}
	defer func() { <-s.turn }()
	if !s.counts(called) {
		s.refresh(ctx)
	}
	return s.value, s.err
}

// counts reports whether the last result is recent enough for a caller that called then.
func (s *Value[T]) counts(called time.Time) bool {
	switch {
	case s.ended.IsZero():
		return false
	case s.fresh == 0:
		return s.begun.After(called)
	case s.ended.After(called): // the caller has waited for it, however long that took
		return true
	case s.err != nil:
		return time.Since(s.ended) < retryAfter
	default:
		return time.Since(s.begun) < s.fresh
	}
}

func (s *Value[T]) refresh(ctx context.Context) {
	if s.pause > 0 && !s.begun.IsZero() {
		select { // callers that come meanwhile get the result, too
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
