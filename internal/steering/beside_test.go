package steering_test

import (
	_ "embed"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/steering"
	"notifier/test/kit"
)

// The script of release v0.2.0. During an upgrade its workers and commands run beside this release.
//
//go:embed testdata/v0.2.0/steer.lua
var steerBefore string

// before runs the script of v0.2.0, and returns the status.
func (w *world) before(arguments ...any) int64 {
	w.Helper()
	reply, err := redis.NewScript(steerBefore).Run(w.Context(), w.client, []string{key}, arguments...).Int64Slice()
	kit.Check(w.T, err)
	return reply[0]
}

// restoreBefore restores a hash as a worker of v0.2.0 does.
func (w *world) restoreBefore(read map[string]string) int64 {
	w.Helper()
	arguments := []any{"restore", read["version"], "born", read["born"]}
	for field, value := range read {
		if field != "version" && field != "born" {
			arguments = append(arguments, field, value)
		}
	}
	return w.before(arguments...)
}

func (w *world) fields() map[string]string { return w.client.HGetAll(w.Context(), key).Val() }

// Neither release takes a change of the other one for a loss, and each accepts the other's copy after a loss.
func TestReleaseBeforeSharesTheHash(t *testing.T) {
	w := newWorld(t)
	hour := time.Hour.Microseconds()
	w.before("set", "mute a", hour, `{"by":"old@ops"}`)
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	w.mute("b", time.Hour)
	r.flush()
	if !r.muted("a") || !r.muted("b") {
		t.Fatalf("not in force: %v", w.fields())
	}
	both := w.fields()

	_, _, err := w.store.Clear(t.Context(), steering.Mute, "a")
	kit.Check(t, err)
	if w.before("clear", "mute b") != 1 {
		t.Error("v0.2.0 does not find the mute that this release has set")
	}
	if now := w.fields(); now["version"] <= both["version"] {
		t.Errorf("version %s after %s", now["version"], both["version"])
	}
	if status := w.restoreBefore(both); status != 0 {
		t.Errorf("v0.2.0 restores a cleared mute: %d, %v", status, w.fields())
	}
	kit.Check(t, r.Restore(t.Context(), w.client))
	r.flush()
	if r.muted("a") || r.muted("b") {
		t.Errorf("a cleared mute is back: %v", w.fields())
	}

	w.mute("c", time.Hour)
	r.flush()
	kept := w.fields()
	kit.Check(t, w.client.Del(t.Context(), key).Err())
	r.flush()
	if now := w.fields(); now["mute c"] != kept["mute c"] || now["version"] != kept["version"] {
		t.Errorf("%v is restored, expected %v", now, kept)
	}
	if lines := r.log.FilterMessage("mutes and limits restored").Len(); lines != 1 {
		t.Errorf("%d lines say that they are restored, expected one", lines)
	}
	kit.Check(t, w.client.Del(t.Context(), key).Err())
	w.restoreBefore(kept)
	r.flush()
	if !r.muted("c") {
		t.Errorf("the hash that v0.2.0 restored is not in force: %v", w.fields())
	}
	if lines := r.log.FilterMessage("mutes or limits are not valid, and are skipped").Len(); lines != 0 {
		t.Errorf("%d lines about fields of v0.2.0", lines)
	}
}
