// Package wait has the pauses between attempts. It is a leaf: it knows nothing of what is attempted.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, and reports whether ctx is still on.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter spreads a pause, which is above 0, between half and one and a half of it, so that replicas do not
// retry in step.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
