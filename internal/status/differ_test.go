package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// configured is a configuration with all that can be set.
func configured(t *testing.T) Config {
	t.Helper()
	c := worker(t, "10/30m")
	c.Limits = kit.Rules("100/30m+1000/24h:15m", "10/30m", "errors=20/30m+2/10s,team-a.>=5/1h:fixed")
	c.Limits.Group = kit.Rules("40/30m", "1/1h", "").Global
	c.Limits.GroupOverrides = map[string]ratelimit.Limit{"team-b": kit.Rules("4/30m", "1/1h", "").Global}
	c.Limits.Reserve = map[string]int{"payments": 5, "deploys": 2}
	c.Limits.Pace, c.MaxAge, c.Others = tier(10, 10*time.Second), time.Hour, "65536 escape"
	var err error
	c.Routes, err = ParseRoutes("errors=C0123456,team-a.>=#team-a")
	kit.Check(t, err)
	return c
}

// changed is that with one change.
func changed(t *testing.T, change func(c *Config)) Config {
	t.Helper()
	c := configured(t)
	change(&c)
	return c
}

func subjectOf(t *testing.T, text string) event.Pattern {
	t.Helper()
	subject, err := event.ParsePattern(text)
	kit.Check(t, err)
	return subject
}

// differ is what differs between replicas with these configurations, by name; the first is the most recently
// started one.
func differ(configs map[string]Config) (differences []Difference, n int) {
	k := &known{}
	for i, id := range slices.Sorted(maps.Keys(configs)) {
		k.runs(id, configs[id], -time.Duration(i)*time.Second)
	}
	variants := variantsOf(k.replicas)
	return compare(variants), different(variants)
}

// TestEachSettingCounts: whatever is shown, replicas that differ in it are different, and it is named.
func TestEachSettingCounts(t *testing.T) {
	changes := map[string]func(*Config){
		"NATS_STREAM":    func(c *Config) { c.Stream = "OTHER" },
		"NATS_CONSUMER":  func(c *Config) { c.Consumer = "other" },
		"NATS_SUBJECT":   func(c *Config) { c.Subject = subjectOf(t, "other.>") },
		"LIMIT_GLOBAL":   func(c *Config) { c.Limits.Global = kit.Rules("99/30m", "1/1h", "").Global },
		"LIMIT_CATEGORY": func(c *Config) { c.Limits.Category = kit.Rules("1/1h", "9/30m", "").Category },
		"LIMIT_OVERRIDES": func(c *Config) {
			c.Limits.Overrides = kit.Rules("1/1h", "1/1h", "errors=1/1h").Overrides
		},
		"LIMIT_GROUP":           func(c *Config) { c.Limits.Group = nil },
		"LIMIT_GROUP_OVERRIDES": func(c *Config) { c.Limits.GroupOverrides = nil },
		"LIMIT_RESERVE":         func(c *Config) { c.Limits.Reserve = map[string]int{"payments": 6} },
		"DEDUPE_WINDOW":         func(c *Config) { c.Dedupe = 2 * time.Hour },
		"EVENT_MAX_AGE":         func(c *Config) { c.MaxAge = 0 },
		"SLACK_PACE":            func(c *Config) { c.Limits.Pace = ratelimit.Tier{} },
		"SLACK_CHANNEL":         func(c *Config) { c.Channel = "C2" },
		"SLACK_ROUTES":          func(c *Config) { c.Routes, _ = ParseRoutes("errors=C0123456") },
		others:                  func(c *Config) { c.Others = "65536 allow" },
	}
	if len(changes) != len(shownSettings)+1 {
		t.Errorf("%d changes for %d settings and the others", len(changes), len(shownSettings))
	}
	for name, change := range changes {
		differences, n := differ(map[string]Config{"a": configured(t), "b": changed(t, change)})
		if n != 2 || len(differences) != 1 || differences[0].Name != name {
			t.Fatalf("%s: %d different, %+v", name, n, differences)
		}
		if deployment := strings.HasPrefix(name, "NATS_"); differences[0].Deployment() != deployment {
			t.Errorf("%s: another deployment: %t, expected %t", name, !deployment, deployment)
		}
	}
	differences, n := differ(map[string]Config{"a": configured(t), "b": configured(t)})
	if n != 1 || len(differences) > 0 {
		t.Errorf("%d different, %+v of replicas with the same settings", n, differences)
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	limit := func(text string) func(*Config) {
		return func(c *Config) { c.Limits.Category = kit.Rules("1/1h", text, "").Category }
	}
	differences, _ := differ(map[string]Config{
		"a": configured(t), "b": configured(t), "d": changed(t, limit("7/1h")),
		"c": changed(t, func(c *Config) { limit("5/30m")(c); c.Stream, c.Others = "TEST", "65536 allow" }),
	})
	want := []string{
		"Two deployments share this namespace: NATS_STREAM is S in a, b, d and TEST in c." +
			" They share limits, too; give each a REDIS_NAMESPACE of its own.",
		"Replicas run with different settings: LIMIT_CATEGORY is 10/30m in a, b and 5/30m in c and 7/1h in d;" +
			" other settings are not the same in a, b, d and c.",
	}
	got := warningsOf(differences)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOnlyWhatDiffersOfAListIsShown: a long list hides the one entry that is not the same.
func TestOnlyWhatDiffersOfAListIsShown(t *testing.T) {
	list := func(errors string) Config {
		var entries []string
		for i := range 100 {
			entries = append(entries, fmt.Sprintf("c%d=1/1h", i))
		}
		return changed(t, func(c *Config) {
			c.Limits.Overrides = kit.Rules("1/1h", "1/1h", strings.Join(entries, ",")+errors).Overrides
		})
	}
	for _, test := range []struct{ a, b, wantA, wantB string }{
		{",errors=1/1h", ",errors=2/1h", "errors=1/1h", "errors=2/1h"},
		{",errors=1/1h", "", "errors=1/1h", "(none)"},
	} {
		differences, _ := differ(map[string]Config{"a": list(test.a), "b": list(test.b)})
		got := map[string]string{}
		for _, value := range differences[0].Values {
			got[value.Replicas[0]] = value.Value
		}
		if diff := cmp.Diff(map[string]string{"a": test.wantA, "b": test.wantB}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestManyReplicasAreBounded: 200 replicas, each with its own settings and a name as long as may be.
func TestManyReplicasAreBounded(t *testing.T) {
	configs := map[string]Config{}
	for i := range 200 {
		configs[strings.Repeat("\u202e", 1000)+fmt.Sprint(i)] = worker(t, fmt.Sprintf("%d/1h", i+1))
	}
	differences, n := differ(configs)
	if n != 200 || len(differences) != 1 || len(differences[0].Values) != 4 || differences[0].More != 196 {
		t.Fatalf("%d different: %+v", n, differences)
	}
	text := strings.Join(warningsOf(differences), "\n")
	if len(text) > 5000 || strings.Contains(text, "\u202e") {
		t.Errorf("%d bytes: %.300q", len(text), text)
	}
}

// TestSharingOnPurpose: deployments share a namespace on purpose when they read nothing in common and post to
// the same channel.
func TestSharingOnPurpose(t *testing.T) {
	more := func(change func(*Config)) Config {
		return changed(t, func(c *Config) {
			c.Stream, c.Subject = "MORE", subjectOf(t, "more.>")
			change(c)
		})
	}
	one := configured(t)
	same := func(*Config) {}
	webhook := func(c *Config) { c.Channel = "" }
	for name, test := range map[string]struct {
		first, second       Config
		different, warnings int
	}{
		"another stream and other subjects": {one, more(same), 1, 0},
		"other limits, too":                 {one, more(func(c *Config) { c.Limits.Group = nil }), 2, 1},
		"another consumer, too":             {one, more(func(c *Config) { c.Consumer = "more" }), 1, 0},
		"another channel":                   {one, more(func(c *Config) { c.Channel = "#others" }), 2, 2},
		"the same stream":                   {one, more(func(c *Config) { c.Stream = one.Stream }), 2, 1},
		"the same subjects":                 {one, more(func(c *Config) { c.Subject = one.Subject }), 2, 1},
		"webhooks":                          {changed(t, webhook), more(webhook), 2, 1},
		"the same settings":                 {one, configured(t), 1, 0},
	} {
		differences, n := differ(map[string]Config{"a": test.first, "b": test.second})
		if warnings := warningsOf(differences); n != test.different || len(warnings) != test.warnings {
			t.Errorf("%s: %d different settings, %q; expected %d and %d warnings",
				name, n, warnings, test.different, test.warnings)
		}
	}
}

// TestAReaderIsComparedWithReplicas: it is named first, however many replicas have the same value.
func TestAReaderIsComparedWithReplicas(t *testing.T) {
	k := &known{}
	for i, limit := range []string{"1/1h", "1/1h", "1/1h", "1/1h", "2/1h"} {
		k.runs(fmt.Sprint("a", i), worker(t, limit), 0)
	}
	k.replicas = append(k.replicas, stats.Replica{ID: "old"})
	source, _ := k.reading(worker(t, "1/1h"))
	differences, n, err := source.Compare(t.Context(), "this one")
	kit.Check(t, err)
	want := "LIMIT_CATEGORY is 1/1h in 5 replicas (this one, a0, a1, ...) and 2/1h in a4"
	if n != 5 || len(differences) != 1 || differences[0].Text() != want {
		t.Errorf("of %d replicas %+v, expected of 5: %s", n, differences, want)
	}
}
