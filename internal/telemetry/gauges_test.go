package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// gaugesOf scrapes the gauges of a source and returns them by name, without the prefix.
func gaugesOf(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	kinds := map[string]string{}
	gauges := map[string]string{}
	for line := range strings.Lines(scrape(t, m)) {
		line = strings.TrimSpace(line)
		if name, kind, found := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " "); found && kind == "gauge" {
			kinds[name] = kind
		}
		series, value, _ := strings.Cut(line, " ")
		name, _, _ := strings.Cut(series, "{")
		if own, found := strings.CutPrefix(series, "notifier_"); found && kinds[name] == "gauge" {
			gauges[own] = value
		}
	}
	return gauges
}

// registered returns metrics with gauges of a replica that has nothing to report, unless changes say otherwise.
func registered(limiter *ratelimit.Limiter, changes ...func(*Sources)) *Metrics {
	sources := Sources{
		Snapshot:  func() snapshot.Snapshot { return snapshot.Snapshot{} },
		Limiter:   limiter,
		Different: func(context.Context) (int, error) { return 1, nil },
		LogErrors: func() uint64 { return 3 },
	}
	for _, change := range changes {
		change(&sources)
	}
	m := New()
	m.Register(sources)
	return m
}

func newLimiter(t *testing.T, server *redistest.Server, rules ratelimit.Rules) *ratelimit.Limiter {
	t.Helper()
	limiter, err := ratelimit.New(kit.OpenRedis(t, server.URL()), "n", rules, time.Hour)
	kit.Check(t, err)
	return limiter
}

func TestGaugesShowTheSnapshot(t *testing.T) {
	now := time.Date(2026, 11, 20, 14, 2, 30, 0, time.UTC)
	unread, stuck := uint64(7), uint64(2)
	replica := func(s *Sources) {
		s.Snapshot = func() snapshot.Snapshot {
			return snapshot.Snapshot{
				Time:    now,
				HeldFor: map[string]int{"slack": 42, "pace": 7},
				Channels: []snapshot.Channel{
					{Name: "#ahead", Queued: 1, Oldest: now.Add(time.Second)},
					{Name: "#alerts", Queued: 42, Oldest: now.Add(-90 * time.Second), Why: "slack"},
					{Name: "#bytes\xff", Refused: "is_archived"},
				},
				Streams: []snapshot.Stream{
					{Name: "NOTIFY", Messages: 5, MaxMessages: 10, Unread: &unread, Stuck: &stuck},
					{Name: "UNBOUNDED", Messages: 5},
					{Name: "UNKNOWN", Unknown: "no reply"},
				},
			}
		}
	}
	got := gaugesOf(t, registered(newLimiter(t, redistest.Start(t), kit.Rules("100/30m", "10/30m", "")), replica))
	want := map[string]string{
		`held_events{why="nats"}`:        "0",
		`held_events{why="consumer"}`:    "0",
		`held_events{why="redis"}`:       "0",
		`held_events{why="slack"}`:       "42",
		`held_events{why="credentials"}`: "0",
		`held_events{why="dead_letter"}`: "0",
		`held_events{why="log"}`:         "0",
		`held_events{why="pace"}`:        "7",

		`unposted_events{channel="#ahead"}`:          "1",
		`unposted_events{channel="#alerts"}`:         "42",
		`unposted_events{channel="#bytes�"}`:         "0",
		`unposted_oldest_seconds{channel="#ahead"}`:  "0",
		`unposted_oldest_seconds{channel="#alerts"}`: "90",
		`unposted_oldest_seconds{channel="#bytes�"}`: "0",

		"refused_channels":                       "1",
		`stream_used_ratio{stream="NOTIFY"}`:     "0.5",
		"consumer_pending":                       "7",
		"stream_unread_stuck":                    "2",
		`limit_used{category="",scope="global"}`: "0",
		`limit_max{category="",scope="global"}`:  "100",
		"slack_cooldown_seconds":                 "0",
		"settings_different":                     "1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnknownGaugesAreAbsent stops Redis. A gauge of 0 would look like a limit without use.
func TestUnknownGaugesAreAbsent(t *testing.T) {
	server := redistest.StartProcess(t)
	limiter := newLimiter(t, server, kit.Rules("100/30m", "10/30m", ""))
	server.Stop(t)
	m := registered(limiter, func(s *Sources) {
		s.Different = func(context.Context) (int, error) { return 0, errors.New("redis: refused") }
	})
	began := time.Now()
	got := gaugesOf(t, m)
	if took := time.Since(began); took > 2*sharedTimeout {
		t.Errorf("the scrape took %s", took)
	}
	for name := range got {
		if !strings.HasPrefix(name, "held_events{") && name != "refused_channels" {
			t.Errorf("%s is %s, expected it to be absent", name, got[name])
		}
	}
	if got["refused_channels"] != "0" {
		t.Error("the gauges of the worker itself are absent")
	}
	if text := scrape(t, m); !strings.Contains(text, "\nnotifier_log_errors_total 3\n") {
		t.Errorf("log errors are absent:\n%s", text)
	}
}

func TestScrapesShareOneReadOfRedis(t *testing.T) {
	reads := 0
	m := registered(newLimiter(t, redistest.Start(t), kit.Rules("100/30m", "10/30m", "")), func(s *Sources) {
		s.Different = func(context.Context) (int, error) { reads++; return reads, nil }
	})
	for range 5 {
		gaugesOf(t, m)
	}
	if reads != 1 {
		t.Errorf("5 scrapes read Redis %d times, expected once", reads)
	}
}

func TestCooldownIsTheLongestPause(t *testing.T) {
	limiter := newLimiter(t, redistest.Start(t), kit.Rules("100/30m", "10/30m", ""))
	for channel, rest := range map[string]time.Duration{"#alerts": time.Hour, "#builds": time.Minute} {
		_, _, err := limiter.Answered(t.Context(), ratelimit.Answer{
			Channel: channel, Name: "post of " + channel, RetryAfter: rest,
		})
		kit.Check(t, err)
	}
	rest := gaugesOf(t, registered(limiter))["slack_cooldown_seconds"]
	var seconds float64
	if _, err := fmt.Sscan(rest, &seconds); err != nil || seconds < 3000 || seconds > 3600 {
		t.Errorf("%q s, expected nearly an hour", rest)
	}
}

// TestFullLimitsAreShown fills a group and a category, which have no more admissions then, and a hundred other
// categories, more than are shown.
func TestFullLimitsAreShown(t *testing.T) {
	rules := kit.Rules("1000/30m", "4/30m+3/10m", "")
	rules.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("2/30m", "2/30m", "").Global}
	limiter := newLimiter(t, redistest.Start(t), rules)
	admit := func(id, category string, want ratelimit.Verdict) {
		t.Helper()
		decisions, err := limiter.Admit(t.Context(), []ratelimit.Request{
			{ID: id, Delivery: id, Category: category, Cost: 1},
		})
		kit.Check(t, err)
		if decisions[0].Verdict != want {
			t.Errorf("%s: %+v, expected %d", id, decisions[0], want)
		}
	}
	admit("1", "team-a.x", ratelimit.Admitted)
	admit("2", "team-a.y", ratelimit.Admitted)
	admit("3", "team-a.z", ratelimit.Group)
	for i := range 3 {
		admit(fmt.Sprint("full-", i), "full", ratelimit.Admitted)
		admit(fmt.Sprint("ours-", i), "_other", ratelimit.Admitted)
		admit(fmt.Sprint("same-", i), "team-a", ratelimit.Group)
	}
	for i := range maxCategories {
		admit(fmt.Sprint("busy-", i), fmt.Sprintf("busy%03d", i), ratelimit.Admitted)
	}
	got := gaugesOf(t, registered(limiter))
	for name, want := range map[string]string{
		`limit_used{category="",scope="global"}`:          "108",
		`limit_used{category="team-a",scope="group"}`:     "2",
		`limit_max{category="team-a",scope="group"}`:      "2",
		`limit_used{category="full",scope="category"}`:    "3",
		`limit_max{category="full",scope="category"}`:     "3",
		`limit_used{category="__other",scope="category"}`: "3",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, expected %s", name, got[name], want)
		}
	}
	if series := strings.Count(fmt.Sprint(got), "limit_used{"); series != 1+1+maxCategories {
		t.Errorf("%d series of limit_used, expected one global, one group and %d categories", series, maxCategories)
	}
}

// TestNamesFromRedisAreChecked writes names into the index that no worker writes.
func TestNamesFromRedisAreChecked(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server, kit.Rules("100/30m", "10/30m", ""))
	_, err := limiter.Admit(t.Context(), []ratelimit.Request{{ID: "1", Delivery: "1", Category: "errors", Cost: 1}})
	kit.Check(t, err)
	client := server.Client(t)
	keys, err := client.Keys(t.Context(), "*categories*").Result()
	kit.Check(t, err)
	newest, err := client.ZRangeWithScores(t.Context(), keys[0], -1, -1).Result()
	kit.Check(t, err)
	newest[0].Member = "a\xff"
	kit.Check(t, client.ZAdd(t.Context(), keys[0], newest[0]).Err())
	_, err = limiter.Admit(t.Context(), []ratelimit.Request{{ID: "2", Delivery: "2", Cost: 1}})
	kit.Check(t, err)
	got := gaugesOf(t, registered(limiter))
	if limit := got[`limit_max{category="",scope="global"}`]; limit != "100" {
		t.Errorf("the global limit is %q, expected 100 and not the limit of the empty name", limit)
	}
	if used := got[`limit_used{category="errors",scope="category"}`]; used != "1" {
		t.Errorf("%q slots of errors, expected 1 in %v", used, got)
	}
	for name := range got {
		if strings.Contains(name, "a\uFFFD") || strings.Contains(name, `category="",scope="category"`) {
			t.Errorf("there is a series %s", name)
		}
	}
}
