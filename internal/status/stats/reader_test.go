package stats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// What a replica shows of itself is read back, beside replicas of v0.1.0, whose heartbeats have a fingerprint
// instead of settings.
func TestReplicas(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader := s.client(t), s.reader(t)
		since := time.Date(2026, 11, 20, 4, 39, 1, 123456000, time.UTC)
		beat := stats.Heartbeat{
			Started: since, Version: "v1", Ready: true, Held: 7,
			Waits:    []stats.Wait{{For: "slack", Channel: "#alerts", Reason: "slack: unavailable: http_503", Since: since}},
			Unposted: []stats.Unposted{{Channel: "#alerts", Events: 9, Parked: 2, Oldest: since, Why: "slack"}},
			Settings: stats.Settings{Values: map[string]string{"LIMIT_GLOBAL": "100/30m"}, Others: "f"},
		}
		old := fmt.Sprint(time.Now().UnixMicro(), ` {"settings":"0123456789abcdef","started":"2026-11-20T14:02:30Z",`+
			`"version":"v0.1.0","ready":true,"held":3}`)
		kit.Check(t, client.HSet(t.Context(), "{n}:replicas", "old", old).Err())
		stop := run(t, newRecorder(t, stats.Config{Redis: client, Replica: "new", Heartbeat: func() stats.Heartbeat { return beat }}))
		var replicas []stats.Replica
		shows := func(n int) {
			t.Helper()
			kit.EventuallyNil(t, func() (err error) {
				if replicas, err = reader.Replicas(t.Context()); err == nil && len(replicas) != n {
					err = fmt.Errorf("%d replicas, want %d: %v", len(replicas), n, replicas)
				}
				return err
			})
		}
		shows(2)
		if diff := cmp.Diff(beat, replicas[0].Heartbeat); diff != "" || time.Since(replicas[0].Seen).Abs() > time.Minute {
			t.Errorf("%+v (-want +got):\n%s", replicas[0], diff)
		}
		if r := replicas[1]; r.ID != "old" || !r.Ready || r.Held != 3 || !r.Settings.IsZero() {
			t.Errorf("%+v", r)
		}
		// What v0.1.0 reads: a time, a blank and JSON that has no number or object as settings.
		_, content, _ := strings.Cut(client.HGet(t.Context(), "{n}:replicas", "new").Val(), " ")
		if !strings.HasPrefix(content, "{") || strings.Contains(content, `"settings":`) {
			t.Errorf("heartbeat %q", content)
		}
		stop()
		shows(1) // it has said that it ends
	})
}

// A replica that died is not listed after a minute, and another one removes what it left.
func TestReplicasThatDied(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader := s.client(t), s.reader(t)
		for id, age := range map[string]time.Duration{"dead": time.Minute + 5*time.Second, "dying": 30 * time.Second, "of the future": -2 * time.Minute} {
			value := fmt.Sprint(time.Now().Add(-age).UnixMicro(), " {}")
			kit.Check(t, client.HSet(t.Context(), "{n}:replicas", id, value).Err())
		}
		replicas, err := reader.Replicas(t.Context())
		if err != nil || len(replicas) != 2 || replicas[0].ID != "dying" {
			t.Errorf("%v, %v", replicas, err)
		}
		if ahead := time.Until(replicas[1].Seen); ahead > time.Minute {
			t.Errorf("seen in %s, expected no time in the future", ahead)
		}
		run(t, newRecorder(t, stats.Config{Redis: client}))()
		left, err := client.HKeys(t.Context(), "{n}:replicas").Result()
		if diff := cmp.Diff([]string{"dying"}, left); diff != "" || err != nil {
			t.Errorf("%v, left (-want +got):\n%s", err, diff)
		}
	})
}

// A killed replica leaves its last heartbeat. It is silent once it has missed a few: what it held, waited for
// and refused then says nothing of now, and it is not ready.
func TestASilentReplicaIsNotReady(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		const beat = `{"version":"v1","ready":true,"held":3,"waits":[{"for":"nats"}],"refused_channels":{"#a":"is_archived"},` +
			`"unposted":[{"channel":"#a","events":3}],"config":{"values":{"LIMIT_GLOBAL":"5/1h"}}}`
		for id, age := range map[string]time.Duration{"killed": 6 * time.Second, "slow": 3 * time.Second} {
			value := fmt.Sprint(time.Now().Add(-age).UnixMicro(), " ", beat)
			kit.Check(t, s.client(t).HSet(t.Context(), "{n}:replicas", id, value).Err())
		}
		replicas, err := s.reader(t).Replicas(t.Context())
		kit.Check(t, err)
		killed, slow := replicas[0], replicas[1]
		if slow.Silent || !slow.Ready || slow.HeldEvents() != 3 || len(slow.Refused) != 1 {
			t.Errorf("%+v, expected that it runs", slow)
		}
		want := stats.Heartbeat{Version: "v1", Settings: slow.Settings}
		if diff := cmp.Diff(want, killed.Heartbeat); diff != "" || !killed.Silent || killed.Settings.IsZero() {
			t.Errorf("silent: %t (-want +got):\n%s", killed.Silent, diff)
		}
	})
}

// A foreign value is reported with the key's name.
func TestForeignValues(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, reader, ctx := s.client(t), s.reader(t), t.Context()
		minute := fmt.Sprint("{n}:counts:", time.Now().Add(-time.Minute).Unix()/60)
		hour := func() error { _, err := reader.Hour(ctx); return err }
		replicas := func() error { _, err := reader.Replicas(ctx); return err }
		sources := func() error { _, err := reader.Sources(ctx); return err }
		slot := fmt.Sprint("{n}:sources:", time.Now().Unix()/600)
		for _, test := range []struct {
			key, field, value string
			read              func() error
		}{
			{slot, "x", "1", sources},
			{slot, "sent\ta", "1", sources},
			{slot, "sent\ta\tb\tc", "1", sources},
			{slot, "lost\ta\tb", "1", sources},
			{slot, "sent\ta\tb", "-1", sources},
			{minute, "", "text", hour},
			{minute, "no slashes", "1", hour},
			{minute, "sent/errors", "1", hour},
			{minute, "sent//errors", "many", hour},
			{minute, "sent//errors", "-1", hour},
			{"{n}:lastsent", "", "text", hour},
			{"{n}:replicas", "", "text", replicas},
			{"{n}:replicas", "a", "{}", replicas},
			{"{n}:replicas", "a", "soon {}", replicas},
			{"{n}:replicas", "a", fmt.Sprint(time.Now().UnixMicro(), " {"), replicas},
			{"{n}:replicas", "a", fmt.Sprint(time.Now().UnixMicro(), " []"), replicas},
		} {
			var err error
			if test.field == "" {
				err = client.Set(ctx, test.key, test.value, time.Minute).Err()
			} else {
				err = client.HSet(ctx, test.key, test.field, test.value).Err()
			}
			kit.Check(t, err)
			if err := test.read(); err == nil || !strings.Contains(err.Error(), test.key) {
				t.Errorf("%s with %q=%q: %v", test.key, test.field, test.value, err)
			}
			kit.Check(t, client.Del(ctx, test.key).Err())
			if err := test.read(); err != nil {
				t.Errorf("without %s: %v", test.key, err)
			}
		}
	})
}

// A recorder that finds something else in a key's place counts nothing, and nothing twice when it is gone.
func TestForeignKeysStopTheRecorderOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		client, ctx := s.client(t), t.Context()
		for _, key := range []string{"{n}:lastsent", "{n}:digest:pending", "{n}:replicas", "{n}:steering"} {
			kit.Check(t, client.Set(ctx, key, "text", time.Minute).Err())
			recorder := newRecorder(t, stats.Config{Redis: client, Limit: limitText})
			at := time.Now()
			recorder.Observe("sent", "", key, "", 1, at)
			recorder.Observe("dropped", "global", key, "", 1, at)
			run(t, recorder)()
			if fields := client.HGetAll(ctx, fmt.Sprint("{n}:counts:", at.Unix()/60)).Val(); fields["sent//"+key] != "" {
				t.Errorf("%s: counted all the same: %v", key, fields)
			}
			kit.Check(t, client.Del(ctx, key).Err())
			run(t, recorder)()
			if n := sums(t, s.reader(t))[key+" sent "]; n != 1 {
				t.Errorf("%s: %d events are counted, want 1", key, n)
			}
		}
	})
}

func TestDropFields(t *testing.T) {
	for _, drop := range []stats.Drop{
		{Reason: "global", Limit: "100/30m+1/5s", Category: "a b", Count: 3},
		{Reason: "group", Limit: "200/24h:fixed", Category: "team-a.job1", Count: 2},
		{Reason: "category", Limit: "-", Category: "", Count: 1},
	} {
		got, err := stats.ParseDrop(drop.Field(), fmt.Sprint(drop.Count))
		if err != nil || got != drop {
			t.Errorf("%+v, %v, want %+v", got, err, drop)
		}
	}
	for _, pair := range [][2]string{
		{"since", "1"}, {"global 1/1s", "1"}, {"global  errors", "1"}, {"duplicate 1/1s errors", "1"}, {"groups 1/1s errors", "1"},
		{"global 1/1s errors", "0"}, {"global 1/1s errors", "1.5"}, {"global 1/1s errors", ""}, {"", "1"},
	} {
		if drop, err := stats.ParseDrop(pair[0], pair[1]); err == nil {
			t.Errorf("%q is read as %+v", pair, drop)
		}
	}
	if field := (stats.Drop{Reason: "global", Limit: "no limit", Category: "c"}).Field(); field != "global - c" {
		t.Errorf("field %q", field)
	}
}
