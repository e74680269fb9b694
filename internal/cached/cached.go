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

	turn         chan struct{} // a lock for the fields below that a caller can stop waiting for
	begun, ended time.Time     // of the last read; zero before the first
	value        T
	err          error
}

// New returns a Value without a result. A result is fresh for that long after its read began; an error is
// kept for a second after it ended. Then the next caller reads again. If fresh is zero, only callers that wait
// for a read share its result. At most one read runs at a time, and its context ends after timeout.
func New[T any](fresh, timeout time.Duration, read func(ctx context.Context) (T, error)) *Value[T] {
	return &Value[T]{read: read, fresh: fresh, timeout: timeout, turn: make(chan struct{}, 1)}
}

// Get returns the last result, or reads again if it is too old. ctx bounds the read, whose result other
// callers share, so it must not be the context of one caller.
func (v *Value[T]) Get(ctx context.Context) (T, error) { return v.GetFor(context.Background(), ctx) }

// GetFor is Get for a caller that may give up: if caller ends while another caller's read runs, it returns
// the error of caller. If it reads itself, it waits for that read.
func (v *Value[T]) GetFor(caller, ctx context.Context) (value T, err error) {
	called := time.Now()
	select {
	case v.turn <- struct{}{}:
	case <-caller.Done():
		return value, caller.Err()
	}
	defer func() { <-v.turn }()
	if !v.serves(called) {
		v.refresh(ctx)
	}
	return v.value, v.err
}

// serves reports whether the last result is recent enough for a caller that called at this time.
func (v *Value[T]) serves(called time.Time) bool {
	switch {
	case v.ended.IsZero():
		return false
	case v.ended.After(called): // the caller has waited for it, however long that took
		return true
	case v.err != nil:
		return v.fresh > 0 && time.Since(v.ended) < retryAfter
	default:
		return time.Since(v.begun) < v.fresh
	}
}

func (v *Value[T]) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	v.begun = time.Now()
	v.value, v.err = v.read(ctx)
	v.ended = time.Now()
}
