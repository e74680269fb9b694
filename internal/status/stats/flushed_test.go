package stats_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// Replicas show their settings, and those of v0.1.0 run beside them: their heartbeats have a fingerprint
// instead.
func TestReplicasShowTheirSettings(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader := s.client(t), s.reader(t)
		old := fmt.Sprint(time.Now().UnixMicro(), ` {"settings":"0123456789abcdef","started":"2026-11-20T14:02:30Z",`+
			`"version":"v0.1.0","ready":true,"held":3}`)
		kit.Check(t, client.HSet(t.Context(), "{n}:replicas", "old", old).Err())
		settings := stats.Settings{Values: map[string]string{"LIMIT_GLOBAL": "100/30m"}, Others: "f"}
		beat := func() stats.Heartbeat { return stats.Heartbeat{Settings: settings} }
		run(t, newRecorder(t, stats.Config{Redis: client, Replica: "new", Heartbeat: beat}))
		var replicas []stats.Replica
		kit.EventuallyNil(t, func() (err error) {
			if replicas, err = reader.Replicas(t.Context()); err == nil && len(replicas) != 2 {
				err = fmt.Errorf("%+v, expected two replicas", replicas)
			}
			return err
		})
		if diff := cmp.Diff(settings, replicas[0].Settings); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if r := replicas[1]; r.ID != "old" || !r.Ready || r.Held != 3 || !r.Settings.IsZero() {
			t.Errorf("%+v", r)
		}
		// What v0.1.0 reads: a time, a blank and JSON that has no number or object as settings.
		value := client.HGet(t.Context(), "{n}:replicas", "new").Val()
		_, content, _ := strings.Cut(value, " ")
		if !strings.HasPrefix(content, "{") || strings.Contains(content, `"settings":`) {
			t.Errorf("heartbeat %q", value)
		}
	})
}
