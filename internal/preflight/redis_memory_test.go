package preflight

import (
	"testing"

	"notifier/internal/settings"
	"notifier/test/redistest"
)

// TestRoomInRedis: what the limits can take, held against maxmemory.
func TestRoomInRedis(t *testing.T) {
	t.Parallel()
	bounded := redistest.StartProcess(t, "--maxmemory", "64mb")
	noConfig := redistest.StartProcess(t, "--maxmemory", "64mb", "--rename-command", "CONFIG", "")
	unbounded := redistest.StartProcess(t)
	unbounded.SetUser(t, secret, "blind", "~*", "+@all", "-info", "-config")
	for name, test := range map[string]struct {
		url, global, dedupe string
		level               Level
		text                string
	}{
		"room":               {bounded.URL(), "100/30m", "24h", OK, "full limits take up to 39.1 KiB and the ids of their events up to 794.5 KiB; 6"},
		"without CONFIG":     {noConfig.URL(), "100/30m", "24h", OK, "the ids of their events up to 794.5 KiB; 6"},
		"too many slots":     {bounded.URL(), "200000/30m", "1h", Warn, "full limits take up to 76.3 MiB and the ids of their events up to 77.8 MiB, and of maxmemory 64.0 MiB only 6"},
		"too many ids":       {noConfig.URL(), "20000/30m", "744h", Warn, "and of maxmemory 64.0 MiB only 6"},
		"no bound":           {unbounded.URL(), "100/30m", "24h", Note, "no maxmemory; full limits take up to 39.1 KiB, the ids of their events up to 794.5 KiB"},
		"nothing is known":   {"redis://blind:" + secret + "@" + unbounded.Addr, "100/30m", "24h", Note, "maxmemory unknown; full limits take up to 39.1 KiB"},
		"buckets take fewer": {bounded.URL(), "200000/24h:15m", "1h", Warn, "full limits take up to 38.2 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, func(env *settings.Environment) {
				env.RedisURL, env.LimitGlobal, env.DedupeWindow = test.url, test.global, test.dedupe
			})
			wantFinding(t, found(t, checkRedis, s), test.level, test.text)
		})
	}
}
