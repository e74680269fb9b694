package availability

import (
	"context"
	"time"

	"notifier/internal/consume/wait"
)

// RetryPause is the time between two attempts to reach Redis, give or take half of it. Tests shorten it.
var RetryPause = 500 * time.Millisecond

// Retry repeats a call until it succeeds, and reports what is unavailable meanwhile. It fails only when ctx
// ends, with ctx's error.
func (a *Tracker) Retry(ctx context.Context, d Dependency, call func() error) error {
	for {
		err := call()
		if err == nil {
			a.Recovered(d)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Lost(d, err)
		if !wait.For(ctx, wait.Jitter(RetryPause)) {
			return ctx.Err()
		}
	}
}
