// Package wait has the pauses between attempts.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. It returns false if ctx is done first.
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

// ConnectionCheck is the pause of Until between two looks for a connection to NATS.
const ConnectionCheck = 100 * time.Millisecond

// Until waits until holds returns true, and calls it again after each pause. It returns false if ctx is done
// first.
func Until(ctx context.Context, pause time.Duration, holds func() bool) bool {
	for !holds() {
		if !For(ctx, pause) {
			return false
		}
	}
	return true
}

// Jitter returns between a half and one and a half of d, which is above zero, so that workers do not retry in
// step.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
