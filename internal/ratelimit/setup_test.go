package ratelimit_test

import (
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
)

func mustParse(text string) ratelimit.Limit {
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return limit
}

// newLimiter gives a limiter of its own namespace on the server.
func newLimiter(tb testing.TB, server *redistest.Server, rules ratelimit.Rules, dedupe time.Duration) *ratelimit.Limiter {
	tb.Helper()
	limiter, err := ratelimit.New(server.Client(tb), tb.Name(), rules, dedupe)
	if err != nil {
		tb.Fatal(err)
	}
	return limiter
}
