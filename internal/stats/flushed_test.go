package stats_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/stats"
	"notifier/internal/testkit"
)

// What a flush brings back is all that a replica needs to know of the others.
func TestAFlushBringsBackVersionAndReplicas(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client := s.client(t)
		flushes := func(replica string) *atomic.Pointer[stats.Flushed] {
			var last atomic.Pointer[stats.Flushed]
			run(t, newRecorder(t, stats.Config{
				Redis: client, Replica: replica, Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} },
				Settings: stats.Settings{Fingerprint: "f-" + replica, Document: `{"of":"` + replica + `"}`},
				Flushed:  func(f stats.Flushed) { last.Store(&f) }, Every: 10 * time.Millisecond,
			}))
			return &last
		}
		testkit.Check(t, client.HSet(t.Context(), "{n}:steering", "version", 7).Err())
		seen := flushes("a")
		flushes("b")
		testkit.EventuallyNil(t, func() error {
			flushed := seen.Load()
			if flushed == nil || len(flushed.Peers) != 2 {
				return fmt.Errorf("%v, want two replicas", flushed)
			}
			for _, peer := range flushed.Peers {
				if peer.Settings != "f-"+peer.Replica || time.Since(peer.Seen).Abs() > time.Minute {
					t.Fatalf("%+v", peer)
				}
			}
			if flushed.Version != 7 || time.Since(flushed.Now).Abs() > time.Minute {
				t.Fatalf("%+v", flushed)
			}
			return nil
		})
	})
}

// Settings are stored once, again when the store has lost them, and removed when no replica runs with them.
func TestSettingsOfReplicas(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader := s.client(t), s.reader(t)
		start := func(fingerprint string) (stop func()) {
			return run(t, newRecorder(t, stats.Config{
				Redis: client, Replica: fingerprint, Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} },
				Settings: stats.Settings{Fingerprint: fingerprint, Document: "{}"}, Every: 10 * time.Millisecond,
			}))
		}
		want := func(fingerprints ...string) {
			t.Helper()
			testkit.EventuallyNil(t, func() error {
				settings, err := reader.Settings(t.Context(), "old", "never", "new")
				testkit.Check(t, err)
				for _, fingerprint := range fingerprints {
					if settings[fingerprint] != "{}" {
						return fmt.Errorf("%v, want %v", settings, fingerprints)
					}
				}
				if len(settings) != len(fingerprints) {
					return fmt.Errorf("%v, want %v", settings, fingerprints)
				}
				return nil
			})
		}
		stop := start("old")
		want("old")
		testkit.Check(t, client.Del(t.Context(), "{n}:settings").Err())
		want("old")
		stop()
		start("new") // whose first flush removes what has ended
		want("new")
	})
}

// Nothing is taken from a reply that is not the script's.
func TestUnexpectedRepliesToAFlush(t *testing.T) {
	for name, reply := range map[string][]any{
		"short":            {int64(1), int64(0), int64(1)},
		"time":             {"now", int64(0), int64(1), []any{}},
		"version":          {int64(1), "0", int64(1), []any{}},
		"flag":             {int64(1), int64(0), nil, []any{}},
		"replicas":         {int64(1), int64(0), int64(1), "a"},
		"half a replica":   {int64(1), int64(0), int64(1), []any{"a", "f"}},
		"name of one":      {int64(1), int64(0), int64(1), []any{int64(1), "f", int64(1)}},
		"its fingerprint":  {int64(1), int64(0), int64(1), []any{"a", nil, int64(1)}},
		"its time":         {int64(1), int64(0), int64(1), []any{"a", "f", "1"}},
		"one field beyond": {int64(1), int64(0), int64(1), []any{}, int64(1)},
	} {
		if flushed, err := stats.DecodeFlushed(reply); err == nil {
			t.Errorf("%s: %+v", name, flushed)
		}
	}
}

// Replicas of the version before this one have heartbeats without settings: they are seen, and see the others.
func TestReplicasThatPublishNoSettings(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client := s.client(t)
		old := fmt.Sprint(time.Now().UnixMicro(), ` {"started":"2026-11-20T14:02:30Z","version":"v1","ready":true,"held":3}`)
		testkit.Check(t, client.HSet(t.Context(), "{n}:replicas", "old", old).Err())
		var last atomic.Pointer[stats.Flushed]
		run(t, newRecorder(t, stats.Config{
			Redis: client, Replica: "new", Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} },
			Settings: stats.Settings{Fingerprint: "f", Document: "{}"}, Flushed: func(f stats.Flushed) { last.Store(&f) },
		}))
		testkit.Eventually(t, "both are seen", func() bool { f := last.Load(); return f != nil && len(f.Peers) == 2 })
		for _, peer := range last.Load().Peers {
			if want := map[string]string{"old": "", "new": "f"}[peer.Replica]; peer.Settings != want {
				t.Errorf("%+v, want settings %q", peer, want)
			}
		}
		replicas, err := s.reader(t).Replicas(t.Context())
		if err != nil || len(replicas) != 2 || replicas[1].ID != "old" || !replicas[1].Ready || replicas[0].Settings != "f" {
			t.Errorf("%+v, %v", replicas, err)
		}
		// What a version before this one expects: a time, a blank and JSON.
		value := client.HGet(t.Context(), "{n}:replicas", "new").Val()
		if _, content, _ := strings.Cut(value, " "); !strings.HasPrefix(content, "{") {
			t.Errorf("heartbeat %q", value)
		}
	})
}

// TestFingerprintsAreBounded: who may write to Redis may have written a heartbeat. What is of no use takes nobody's place.
func TestFingerprintsAreBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader := s.client(t), s.reader(t)
		beat := fmt.Sprintf(`%d {"settings":"%s"}`, time.Now().UnixMicro(), strings.Repeat("\u202e", 50_000))
		testkit.Check(t, client.HSet(t.Context(), "{n}:replicas", "hostile", beat).Err())
		replicas, err := reader.Replicas(t.Context())
		if err != nil || len(replicas) != 1 || replicas[0].Settings == "" || len(replicas[0].Settings) > 64 {
			t.Errorf("%.300v, %v", replicas, err)
		}
		flushed := make(chan stats.Flushed, 1)
		run(t, newRecorder(t, stats.Config{Redis: client, Replica: "a", Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} }, Flushed: func(f stats.Flushed) {
			select {
			case flushed <- f:
			default:
			}
		}}))
		for _, peer := range (<-flushed).Peers {
			if len(peer.Settings) > 64 {
				t.Errorf("%d bytes of %s", len(peer.Settings), peer.Replica)
			}
		}
	})
}
