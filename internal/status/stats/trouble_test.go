package stats_test

import (
	"testing"
	"time"

	"notifier/internal/status/stats"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestTroubleHasAKind(t *testing.T) {
	for reason, want := range map[string]string{
		"redis: cannot add the counts: OOM command not allowed when used memory > 'maxmemory'. script: 1f": stats.Full,
		"READONLY You can't write against a read only replica.":                                            stats.ReadOnly,
		"MISCONF Redis is configured to save RDB snapshots, but ...":                                       stats.NotSaving,
		"NOREPLICAS Not enough good replicas to write.":                                                    stats.NoReplicas,
		"LOADING Redis is loading the dataset in memory":                                                   stats.Loading,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                 stats.Denied,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                stats.WrongKey,
		`redis: {n}:counts:1: field "x", expected outcome/reason/category`:                                 stats.WrongKey,
		"unexpected EOF": stats.Unreachable,
		"dial tcp 127.0.0.1:1: connection refused":    stats.Unreachable,
		"dial tcp: lookup LOOM on 127.0.0.1: no host": stats.Unreachable,
		"": stats.Unreachable,
	} {
		if got := stats.TroubleKind(reason); got != want {
			t.Errorf("%q is %s, expected %s", reason, got, want)
		}
	}
}

// TestTheRecorderKnowsItsTrouble: of a Redis that is full, that is a replica, and that is gone.
func TestTheRecorderKnowsItsTrouble(t *testing.T) {
	server := redistest.StartProcess(t)
	proxy := redistest.StartProxy(t, server.Addr)
	admin := server.Client(t)
	recorder := newRecorder(t, stats.Config{
		Redis: kit.OpenRedis(t, "redis://"+proxy.Addr), Every: 20 * time.Millisecond, Heartbeat: func() stats.Heartbeat { return stats.Heartbeat{} },
	})
	stop := run(t, recorder)
	defer stop()
	eventually := func(kind string) *stats.Trouble {
		t.Helper()
		var trouble *stats.Trouble
		kit.Eventually(t, "the trouble is "+kind, func() bool {
			trouble = recorder.Trouble()
			return kind == "" && trouble == nil || trouble != nil && trouble.Kind == kind
		})
		return trouble
	}
	eventually("")
	kit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	full := eventually(stats.Full)
	if full.Reason == "" || time.Since(full.Since) > time.Hour {
		t.Errorf("%+v, expected a reason and a time", full)
	}
	kit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	eventually("")
	kit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err())
	lonely := eventually(stats.NoReplicas)
	proxy.Cut()
	if gone := eventually(stats.Unreachable); !gone.Since.Equal(lonely.Since) {
		t.Errorf("since %s, expected the time at which counts were refused first, %s", gone.Since, lonely.Since)
	}
	kit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	proxy.Heal()
	eventually("")
}
