package ratelimit_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestMain lets tests overlap: those of failures wait for servers, and the others have a store each.
func TestMain(m *testing.M) {
	kit.Overlap(12)
	kit.QuietRedis()
	debug.SetGCPercent(400) // the embedded store makes a Lua state for each call, and throws it away
	playHistories("30")
	os.Exit(m.Run())
}

// playHistories is how many random histories rapid plays of each kind where neither the command line nor
// -short says how many. "make prove" plays more.
func playHistories(n string) {
	chosen := testing.Short()
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "rapid.checks" })
	if !chosen {
		_ = flag.Set("rapid.checks", n)
	}
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
	kit.Check(tb, err)
	return limiter
}
