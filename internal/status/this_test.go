package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

// TestAStatusTrustsTheWorkerAboutItself: a heartbeat that is old, or was never stored, gives way to what the
// worker knows.
func TestAStatusTrustsTheWorkerAboutItself(t *testing.T) {
	waits := []stats.Wait{{For: "redis", Kind: stats.Full, Reason: "OOM command not allowed", Since: now}}
	this := &This{Replica: "b", Beat: stats.Heartbeat{Held: 4, Waits: waits, Version: "new"}}
	for name, stored := range map[string][]stats.Replica{
		"nothing is stored":      {},
		"an old one is stored":   {{ID: "b", Seen: now.Add(-40 * time.Second), Heartbeat: stats.Heartbeat{Version: "old"}}},
		"others are stored, too": {{ID: "a", Seen: now}, {ID: "c", Seen: now}},
	} {
		k := &known{replicas: stored, hour: stats.Hour{Now: now}}
		source := k.source()
		source.This = func() *This { return this }
		got, err := source.Read(t.Context())
		kit.Check(t, err)
		at := 0
		for i, replica := range got.Replicas {
			if replica.ID == "b" {
				at = i
			}
		}
		own := got.Replicas[at]
		if got.Held != 4 || own.ID != "b" || own.Version != "new" || !own.Seen.Equal(now) || len(own.Waits) != 1 || got.This != this {
			t.Errorf("%s: held %d, %+v", name, got.Held, own)
		}
		if text := got.Table(term.Screen{}); strings.Contains(text, "No replica") || strings.Contains(text, "not reported") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestWhatRedisDoesForAWorker(t *testing.T) {
	trouble := func(kind string) *stats.Trouble {
		return &stats.Trouble{Kind: kind, Reason: "because", Since: now}
	}
	waiting := []stats.Wait{{For: "slack", Since: now}, {For: "redis", Reason: "READONLY You can't write", Since: now}}
	type result struct{ State, Kind, Text string }
	for name, of := range map[string]struct {
		waits   []stats.Wait
		refused string
		trouble *stats.Trouble
		want    result
	}{
		"nothing":                             {want: result{State: RedisOK}},
		"Slack alone":                         {waits: waiting[:1], want: result{State: RedisOK}},
		"counts are refused by a full one":    {trouble: trouble(stats.Full), want: result{RedisCountsOnly, stats.Full, "Redis is full (maxmemory): counts are not stored; no decision was refused"}},
		"counts are refused by a damaged key": {trouble: trouble(stats.WrongKey), want: result{RedisCountsOnly, stats.WrongKey, "a key in Redis holds what notifier does not write: counts are not stored; no decision was refused"}},
		"a full one, and decisions":           {refused: "OOM", trouble: trouble(stats.Full), want: result{RedisRefuses, stats.Full, "Redis is full (maxmemory): nothing is sent"}},
		"a replica":                           {trouble: trouble(stats.ReadOnly), want: result{RedisRefuses, stats.ReadOnly, "Redis is read-only, it is a replica: nothing is sent"}},
		"idle, and Redis is gone":             {trouble: trouble(stats.Unreachable), want: result{RedisUnavailable, stats.Unreachable, "Redis is unavailable: nothing is sent"}},
		"decisions wait":                      {waits: waiting, want: result{RedisRefuses, stats.ReadOnly, "Redis is read-only, it is a replica: nothing is sent"}},
		"loading":                             {trouble: trouble(stats.Loading), want: result{RedisUnavailable, stats.Loading, "Redis is loading its data: nothing is sent"}},
	} {
		got := RedisOf(of.waits, of.refused, of.trouble)
		if diff := cmp.Diff(of.want, result{got.State, got.Kind, got.Text}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (got.Since == nil) != (got.State == RedisOK) {
			t.Errorf("%s: since %v", name, got.Since)
		}
	}
}

func TestWhatIsNotKnownIsNamed(t *testing.T) {
	this := &This{Replica: "a"}
	got := NotKnown(errors.New("LOADING Redis is loading the dataset in memory"), this)
	if got.This != this || got.Kind != stats.Loading || got.Text != "Redis is loading its data" || len(got.Unknown) == 0 {
		t.Errorf("%+v", got)
	}
}

func TestStreamsThatAreNearlyFullAreNamed(t *testing.T) {
	bounded := stats.Stream{Name: "NOTIFY", Used: .87, Bound: stats.BoundMessages, Messages: 87, MaxMessages: 100, Seen: now}
	older, unknown := bounded, stats.Stream{Name: "NOTIFY", Unknown: "NATS does not answer", Seen: now.Add(time.Second)}
	older.Used, older.Seen = .1, now.Add(-time.Minute)
	letters := stats.Stream{Name: "NOTIFY_DEAD", Used: .8, Bound: stats.BoundBytes, Bytes: 8 << 20, MaxBytes: 10 << 20, DiscardsOld: true, Seen: now}
	k := &known{hour: stats.Hour{Now: now, Minutes: []stats.Minute{{Start: now, Counts: []stats.Count{count("x", "dead", "malformed", 3), count("y", "dead", "slack_rejected", 9)}}}}, replicas: []stats.Replica{
		{ID: "a", Seen: now, Heartbeat: stats.Heartbeat{Streams: []stats.Stream{older, letters}}},
		{ID: "b", Seen: now, Heartbeat: stats.Heartbeat{Streams: []stats.Stream{bounded}}},
		{ID: "c", Seen: now, Heartbeat: stats.Heartbeat{Streams: []stats.Stream{unknown, {Name: "OTHER"}, {Name: "DENIED\x1b", Unknown: "denied"}}}},
	}}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	var texts []string
	for _, stream := range got.Streams {
		texts = append(texts, stream.Text)
	}
	want := []string{
		"DENIED\x1b: how full it is is not known (denied)",
		"NOTIFY is 87% full (87 of 100 messages); a full one refuses new messages",
		"NOTIFY_DEAD is 80% full (8.0 MiB of 10.0 MiB); a full one deletes its oldest messages",
		"OTHER has no bound; it has 0 messages",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, replica := range got.Replicas {
		if replica.Streams != nil {
			t.Errorf("%s still has its streams, which are in the status once", replica.ID)
		}
	}
	table := got.Table(term.Screen{})
	for _, line := range []string{
		"12 events ended as dead in the last hour: 9 slack_rejected, 3 malformed. Replayed ones count; \"notifier dead list\" shows the rest.\n", "Stream NOTIFY is 87% full (87 of 100 messages); a full one refuses new messages\n",
		"Stream DENIED?: how full it is is not known (denied)\n",
	} {
		if !strings.Contains(table, line) {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
	if strings.Contains(table, "NOTIFY_DEAD") || strings.Contains(table, "OTHER") {
		t.Errorf("a stream that has room is named:\n%s", table)
	}
}
