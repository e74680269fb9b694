package steering_test

import (
	_ "embed"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/steering"
	"notifier/test/kit"
)

// The script of release v0.1.0, whose replicas and commands run beside those of this one during an upgrade.
//
//go:embed testdata/v0.1.0/steer.lua
var steerBefore string

// before does what v0.1.0 does, and returns the status.
func (w *world) before(arguments ...any) int64 {
	w.Helper()
	reply, err := redis.NewScript(steerBefore).Run(w.Context(), w.client, []string{key}, arguments...).Int64Slice()
	kit.Check(w.T, err)
	return reply[0]
}

// restoreBefore puts back a hash as a replica of v0.1.0 does that has read it.
func (w *world) restoreBefore(read map[string]string) int64 {
	w.Helper()
	arguments := []any{"restore", read["version"], read["born"]}
	for field, value := range read {
		if field != "version" && field != "born" {
			arguments = append(arguments, field, value)
		}
	}
	return w.before(arguments...)
}

func (w *world) fields() map[string]string { return w.client.HGetAll(w.Context(), key).Val() }

// Neither release takes a change of the other one for a loss, and each has the other's copy back after one.
func TestTheReleaseBeforeReadsAndWritesTheSameHash(t *testing.T) {
	w := newWorld(t)
	hour := time.Hour.Microseconds()
	w.before("set", "mute a", hour, `{"by":"old@ops"}`)
	w.mute("b", time.Hour)
	both := w.fields()
	r := w.replica()
	kit.Check(t, r.Load(t.Context()))
	if !r.muted("a") || !r.muted("b") {
		t.Fatalf("not in force: %v", both)
	}

	_, _, err := w.store.Clear(t.Context(), steering.Mute, "a")
	kit.Check(t, err)
	if w.before("clear", "mute b") != 1 {
		t.Error("v0.1.0 does not find what this release has set")
	}
	if now := w.fields(); now["born"] != both["born"] || now["version"] <= both["version"] {
		t.Errorf("v0.1.0 takes %v for another hash than %v", now, both)
	}
	if status := w.restoreBefore(both); status != 0 {
		t.Errorf("v0.1.0 puts back what was cleared: %d, %v", status, w.fields())
	}
	kit.Check(t, r.PutBack(t.Context(), w.client))
	r.flush()
	if r.muted("a") || r.muted("b") {
		t.Errorf("what was cleared is back: %v", w.fields())
	}

	w.mute("c", time.Hour)
	r.flush()
	kept := w.fields()
	kit.Check(t, w.client.Del(t.Context(), key).Err())
	r.flush()
	if now := w.fields(); now["mute c"] != kept["mute c"] || now["born"] != kept["born"] || now["version"] != kept["version"] {
		t.Errorf("%v is put back, expected %v", now, kept)
	}
	kit.Check(t, w.client.Del(t.Context(), key).Err())
	w.restoreBefore(kept)
	r.flush()
	if !r.muted("c") {
		t.Errorf("what v0.1.0 has put back is not in force: %v", w.fields())
	}

	kit.Check(t, w.client.Del(t.Context(), key).Err()) // a hash that begins with this release
	w.mute("d", time.Hour)
	begun := w.fields()
	w.before("set", "mute e", hour, `{"by":"old@ops"}`)
	if now := w.fields(); now["born"] != begun["born"] || begun["born"] != begun["version"] {
		t.Errorf("v0.1.0 takes %v for another hash than %v", now, begun)
	}
}
