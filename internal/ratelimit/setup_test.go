package ratelimit_test

import (
	"os"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// TestMain lets tests overlap: those of failures wait for servers, and the others have a store each.
func TestMain(m *testing.M) {
	testkit.Overlap(4)
	os.Exit(m.Run())
}

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
	testkit.Check(tb, err)
	return limiter
}
