package ratelimit_test

import (
	"fmt"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A call has the rules of its own scopes alone: however many limits there are for others, Redis is sent as much.
func TestLimitsOfOthersCostNothing(t *testing.T) {
	limiter := newLimiter(t, redistest.Start(t), kit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	batch := []ratelimit.Request{event("e", "a.x"), event("e", "b")}
	few := limiter.ArgumentsOf(batch)
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, fmt.Sprint("category/c", i), "5/1h+3/10s")
	}
	limiter.SetTemporary(temporaryLimits(pairs...))
	if many := limiter.ArgumentsOf(batch); many != few {
		t.Errorf("%d arguments with 1,000 limits for others, %d without", many, few)
	}
}
