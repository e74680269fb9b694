package stats_test

import (
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// A flush brings back whether operators have changed anything.
func TestAFlushBringsBackTheVersion(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client := s.client(t)
		kit.Check(t, client.HSet(t.Context(), "{n}:steering", "version", 7).Err())
		var last atomic.Pointer[stats.Flushed]
		run(t, newRecorder(t, stats.Config{Redis: client, Flushed: func(f stats.Flushed) { last.Store(&f) }}))
		kit.Eventually(t, "a flush is answered", func() bool { return last.Load() != nil })
		if f := last.Load(); f.Version != 7 || time.Since(f.Now).Abs() > time.Minute {
			t.Errorf("%+v", f)
		}
	})
}

// Nothing is taken from a reply that is not the script's.
func TestUnexpectedRepliesToAFlush(t *testing.T) {
	for name, reply := range map[string][]any{
		"short":            {int64(1)},
		"time":             {"now", int64(0)},
		"version":          {int64(1), "0"},
		"one field beyond": {int64(1), int64(0), int64(1)},
	} {
		if flushed, err := stats.DecodeFlushed(reply); err == nil {
			t.Errorf("%s: %+v", name, flushed)
		}
	}
}
