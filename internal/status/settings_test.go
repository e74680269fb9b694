package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

// worker are the settings of one with this limit of a category.
func worker(t *testing.T, category string) Config {
	t.Helper()
	subject, err := event.ParsePattern("notify.>")
	kit.Check(t, err)
	return Config{
		Limits: kit.Rules("100/30m", category, ""), Dedupe: time.Hour,
		Channel: "#a", Stream: "S", Consumer: "c", Subject: subject,
	}
}

// runs adds a running replica with settings.
func (k *known) runs(id string, c Config, started time.Duration) {
	beat := stats.Heartbeat{Settings: c.Shown(), Started: now.Add(started)}
	k.replicas = append(k.replicas, stats.Replica{ID: id, Heartbeat: beat})
}

// reading is a source that notes with which limits it reads.
func (k *known) reading(own Config) (source Source, limits *[]string) {
	limits = &[]string{}
	source = k.source()
	source.Own = own
	source.LimiterFor = func(rules ratelimit.Rules, dedupe time.Duration, _ ratelimit.Temporary) (Limiter, error) {
		*limits = append(*limits, rules.Category.String()+" "+dedupe.String())
		return k, nil
	}
	return source, limits
}

// TestTheWorkersSettingsCount: those of most replicas, of equals those of the newest; the reader's own only
// where there are none.
func TestTheWorkersSettingsCount(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}}
	check := func(name, limits, own string, replicas, warnings int) {
		t.Helper()
		source, read := k.reading(worker(t, "99/1h"))
		got, err := source.Read(t.Context())
		kit.Check(t, err)
		s := got.Settings
		if fmt.Sprint(*read) != limits || !strings.Contains(s.OwnText, own) || (own == "") != (s.OwnText == "") || s.Replicas != replicas || len(s.Warnings) != warnings {
			t.Errorf("%s: read with %v, %+v; expected %s, %q, %d replicas and %d warnings", name, *read, s, limits, own, replicas, warnings)
		}
		text := got.Table(term.Screen{})
		for _, line := range append(s.Warnings, s.OwnText) {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q in\n%s", name, line, text)
			}
		}
	}
	check("none", "[]", "No replica runs", 0, 0)
	k.runs("a", worker(t, "1/1h"), 0)
	check("one", "[1/1h 1h0m0s]", "", 1, 0)
	k.runs("b", worker(t, "2/1h"), time.Minute)
	check("the newest of equals", "[2/1h 1h0m0s]", "", 1, 1)
	whose := func(want string) {
		t.Helper()
		source, _ := k.reading(worker(t, "99/1h"))
		got, err := source.Read(t.Context())
		kit.Check(t, err)
		if text := strings.Join(got.Settings.Warnings, ""); !strings.HasSuffix(text, " The limits shown are those of "+want+".") {
			t.Errorf("%q, expected whose limits are shown: those of %s", text, want)
		}
	}
	whose("b")
	k.runs("c", worker(t, "1/1h"), -time.Minute)
	check("most", "[1/1h 1h0m0s]", "", 2, 1)
	whose("a, c")

	k.replicas = append(k.replicas, stats.Replica{ID: "old"}, stats.Replica{ID: "old2"}, stats.Replica{ID: "old3"})
	check("beside more of v0.1.0", "[1/1h 1h0m0s]", "", 2, 1)
	for i := range k.replicas {
		k.replicas[i].Settings.Values = map[string]string{"LIMIT_GLOBAL": "nonsense"}
	}
	check("damaged", "[]", "cannot be used (", 0, 0)
	k.replicas = []stats.Replica{{ID: "old"}}
	check("of v0.1.0", "[]", "The replicas run a release that does not show its limits: ", 0, 0)
}

// TestSettingsThatNoLimiterTakes: what a document says may be valid and still not fit together.
func TestSettingsThatNoLimiterTakes(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}}
	k.runs("a", worker(t, "1/1h"), 0)
	source, _ := k.reading(worker(t, "99/1h"))
	source.LimiterFor = func(ratelimit.Rules, time.Duration, ratelimit.Temporary) (Limiter, error) {
		return nil, errors.New("they do not fit")
	}
	got, err := source.Read(t.Context())
	if err != nil || got.Settings.Fingerprint != "" || !strings.Contains(got.Settings.OwnText, "they do not fit") {
		t.Errorf("%+v, %v", got.Settings, err)
	}
}

// TestNothingIsReadWithTheReadersLimits: where the workers' settings are known, all of a status is read with
// them.
func TestNothingIsReadWithTheReadersLimits(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}, reserves: []ratelimit.Reserve{{Category: "pay", Slots: 1}}}
	k.runs("a", worker(t, "1/1h"), 0)
	source, _ := k.reading(worker(t, "99/1h"))
	source.Limiter = &known{err: errors.New("the reader's own limits are used")}
	_, read := source.Read(t.Context())
	_, explained := source.Explain(t.Context(), "a")
	kit.Check(t, errors.Join(read, explained))
}

// TestExplain puts together what applies to a category.
func TestExplain(t *testing.T) {
	s := worker(t, "10/30m")
	s.Limits = kit.Rules("100/30m", "10/30m", "team-a.>=5/1h")
	s.Limits.GroupOverrides = map[string]ratelimit.Limit{"team-a": kit.Rules("40/30m", "1/1h", "").Global}
	s.Limits.Pace, s.MaxAge = tier(10, 10*time.Second), time.Hour
	var err error
	s.Routes, err = ParseRoutes("team-a.*=#team-a")
	kit.Check(t, err)
	k := &known{
		hour: stats.Hour{Now: now},
		usages: []ratelimit.Usage{
			used("", "", 7, tier(100, 30*time.Minute)), used("team-a", "", 8, tier(40, 30*time.Minute)),
			{Category: "team-a.x", Tier: tier(5, time.Hour), Used: 5, FreeIn: time.Minute},
		},
		pauses:   []ratelimit.Pause{{Channel: "#team-a", Left: 12 * time.Second}, {Channel: "#other", Left: time.Second}, {Left: time.Second}},
		reserves: []ratelimit.Reserve{{Category: "team-a.x", Tier: tier(100, 30*time.Minute), Slots: 5, Used: 2, Kept: 3}, {Category: "pay", Tier: tier(100, 30*time.Minute), Slots: 2, Kept: 2}},
	}
	k.runs("a", s, 0)
	k.replicas[0].Unposted = []stats.Unposted{{Channel: "#team-a", Events: 3, Oldest: now.Add(-time.Minute), Why: "slack"}}
	k.replicas[0].Refused = map[string]string{"#team-a": "is_archived"}
	source, _ := k.reading(Config{})
	e, err := source.Explain(t.Context(), "team-a.x")
	kit.Check(t, err)
	text := e.Lines(term.Screen{})
	for _, want := range []string{
		"An event would be dropped now (category): the limit 5/1h of the category is full. There is room in 1m (",
		"\ngroup            team-a\n", "\nglobal limit     100/30m, 7 of 100 used, room now, 2 kept for others (LIMIT_GLOBAL)\n",
		"\ngroup limit      40/30m, 8 of 40 used, room now (LIMIT_GROUP_OVERRIDES team-a)\n",
		"\ncategory limit   5/1h, 5 of 5 used, room in 1m (", "(LIMIT_OVERRIDES team-a.>)\n",
		"\nreserve          5 slots of the global limit, 3 not used (LIMIT_RESERVE)\n", "\nmute             none\n",
		"\nchannel          #team-a (SLACK_ROUTES team-a.*)\n", "\npace             10/10s for all events of the channel\n",
		" #team-a: Slack asked to wait 12 s\n", "  Slack asked to wait 1 s\n", " #team-a: 3 events wait to be posted, the oldest for 1m; ",
		" #team-a rejects every message (is_archived); its events are dead-lettered\n", "\nage              events older than 1h are dropped\n",
		"\nsettings         those of 1 replica\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "#other") || e.Impossible {
		t.Errorf("impossible: %t,\n%s", e.Impossible, text)
	}

	s.Subject, err = event.ParsePattern("notify.*")
	kit.Check(t, err)
	k.replicas = nil
	k.runs("a", s, 0)
	if e, err = source.Explain(t.Context(), "team-a.x"); err != nil || !e.Impossible || !strings.HasPrefix(e.Lines(term.Screen{}), "No event can have this category: no subject of NATS_SUBJECT notify.* gives it.\n") {
		t.Errorf("impossible: %t, %v\n%s", e.Impossible, err, e.Lines(term.Screen{}))
	}
	k.err = errors.New("redis is unavailable")
	if _, err := source.Explain(t.Context(), "team-a.x"); err == nil {
		t.Error("no error, expected that of Redis")
	}
}

func TestCheckCategory(t *testing.T) {
	for category, valid := range map[string]bool{
		"errors": true, "team-a.job1": true, "_other": true, "é": true, strings.Repeat("x", 128): true,
		"": false, "a b": false, "a\tb": false, "a..b": false, ".a": false, "a.": false, "a.*": false, ">": false, "a\xff": false, "a\x00": false, strings.Repeat("x", 129): false,
	} {
		if err := CheckCategory(category); (err == nil) != valid {
			t.Errorf("%q: %v, expected that it is valid: %t", category, err, valid)
		}
	}
}

// TestTheStatusOfManyReplicasIsBounded: 200 replicas, each with settings of its own, and 100 categories.
func TestTheStatusOfManyReplicasIsBounded(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(1000, time.Minute)}}}
	for i := range 200 {
		k.runs(fmt.Sprintf("notifier-6d4cf56db6-x%03d-ABCD", i), worker(t, fmt.Sprintf("%d/1h", i+1)), time.Duration(i))
		k.replicas[i].Version, k.replicas[i].Ready = "v1.2.3", true
		k.replicas[i].Waits = []stats.Wait{{For: "redis", Reason: strings.Repeat("x", 300), Since: now}}
	}
	for i := range 100 {
		k.categories = append(k.categories, fmt.Sprintf("category-%d", i))
		k.usages = append(k.usages, used("", fmt.Sprintf("category-%d", i), 9, tier(10, time.Minute)))
	}
	source, _ := k.reading(worker(t, "99/1h"))
	got, err := source.Read(t.Context())
	kit.Check(t, err)
	body, err := json.Marshal(got)
	kit.Check(t, err)
	if len(body) > mostBytes || len(got.Replicas)+got.MoreReplicas != 200 || len(got.Categories) < 50 || len(got.Settings.Warnings) == 0 {
		t.Errorf("%d bytes, %d replicas and %d more, %d categories, %d warnings", len(body), len(got.Replicas), got.MoreReplicas, len(got.Categories), len(got.Settings.Warnings))
	}
	if text := got.Table(term.Screen{}); !strings.Contains(text, "Replicas: 200.\n") {
		t.Errorf("%s", text)
	}
	if strings.Contains(string(body), `"config"`) {
		t.Error("each replica has its settings, expected only what differs")
	}
}

// TestReplicasThatDiedDoNotCount: they are in Redis for a minute, and must not outvote those that have
// replaced them. Where no replica reports, their settings are better than none.
func TestReplicasThatDiedDoNotCount(t *testing.T) {
	k := &known{hour: stats.Hour{Now: now}, usages: []ratelimit.Usage{{Tier: tier(100, time.Minute)}}}
	for _, id := range []string{"a", "b", "c"} {
		k.runs(id, worker(t, "1/1h"), 0)
		k.replicas[len(k.replicas)-1].Silent = true
	}
	k.runs("d", worker(t, "2/1h"), 0)
	source, read := k.reading(worker(t, "99/1h"))
	got, err := source.Read(t.Context())
	kit.Check(t, err)
	if fmt.Sprint(*read) != "[2/1h 1h0m0s]" || got.Settings.Replicas != 1 || len(got.Settings.Warnings) != 0 || len(got.Replicas) != 4 {
		t.Errorf("read with %v, %+v, %d replicas", *read, got.Settings, len(got.Replicas))
	}
	if text := got.Table(term.Screen{}); !strings.Contains(text, "Replicas: 1, ready 0, silent 3.\n") {
		t.Errorf("%s", text)
	}
	if differ, replicas, err := source.Compare(t.Context(), "check"); err != nil || replicas != 1 || len(differ) != 1 {
		t.Errorf("%+v, %d replicas, %v; expected that one runs, with another limit", differ, replicas, err)
	}
	k.replicas[3].Silent = true
	if got, err = source.Read(t.Context()); err != nil || got.Settings.Replicas != 3 {
		t.Errorf("%+v, %v; expected the settings of three", got.Settings, err)
	}
	if differ, replicas, err := source.Compare(t.Context(), "check"); err != nil || replicas != 0 || len(differ) != 0 {
		t.Errorf("%+v, %d replicas, %v; expected that none runs", differ, replicas, err)
	}
}
