package published_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"notifier/internal/event"
	"notifier/internal/published"
	"notifier/internal/ratelimit"
	"notifier/internal/testkit"
)

// settings are some with all that can be set.
func settings(t *testing.T) published.Settings {
	t.Helper()
	s := published.Settings{Dedupe: 24 * time.Hour, MaxAge: time.Hour, Channel: "#alerts", Stream: "NOTIFY", Consumer: "notifier"}
	s.Limits = testkit.Rules("100/30m+1000/24h:15m", "10/30m", "errors=20/30m+2/10s,team-a.>=5/1h:fixed")
	s.Limits.Group = testkit.Rules("40/30m", "1/1h", "").Global
	s.Limits.GroupOverrides = map[string]ratelimit.Limit{"team-b": testkit.Rules("4/30m", "1/1h", "").Global}
	s.Limits.Reserve = map[string]int{"payments": 5, "deploys": 2}
	s.Limits.Pace = ratelimit.Tier{Count: 10, Window: 10 * time.Second}
	var err error
	s.Subject, err = event.ParsePattern("notify.>")
	testkit.Check(t, err)
	s.Routes, err = published.ParseRoutes("errors=C0123456,team-a.>=#team-a")
	testkit.Check(t, err)
	return s
}

// read is what a reader gets of a document.
func read(text, fingerprint string) (published.Settings, error) {
	document, err := published.ReadDocument(text, fingerprint)
	if err != nil {
		return published.Settings{}, err
	}
	return document.Decode()
}

// exact compares what is not exported, too; a list that is empty is as good as none.
var (
	exact      = cmp.Exporter(func(reflect.Type) bool { return true })
	emptyIsNil = cmpopts.EquateEmpty()
)

// TestSettingsComeBack: a reader has what the worker has, and decides with the same limits.
func TestSettingsComeBack(t *testing.T) {
	for name, change := range map[string]func(*published.Settings){
		"all":     func(*published.Settings) {},
		"webhook": func(s *published.Settings) { s.Channel = "" },
		"few": func(s *published.Settings) {
			*s = published.Settings{Dedupe: time.Second, Stream: "S", Consumer: "c", Subject: s.Subject}
			s.Limits = testkit.Rules("1/1ms", "1000000/744h:fixed", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := settings(t)
			change(&want)
			text, fingerprint := want.Encode()
			got, err := read(text, fingerprint)
			testkit.Check(t, err)
			if diff := cmp.Diff(want, got, exact, emptyIsNil); diff != "" {
				t.Errorf("(-worker +reader):\n%s", diff)
			}
			again, same := got.Encode()
			if again != text || same != fingerprint {
				t.Errorf("%s with %s, encoded again %s with %s", text, fingerprint, again, same)
			}
		})
	}
}

// TestEachSettingCounts: whatever is published, replicas that differ in it have different fingerprints, and it is named.
func TestEachSettingCounts(t *testing.T) {
	changes := map[string]func(*published.Settings){
		"NATS_STREAM":    func(s *published.Settings) { s.Stream = "OTHER" },
		"NATS_CONSUMER":  func(s *published.Settings) { s.Consumer = "other" },
		"NATS_SUBJECT":   func(s *published.Settings) { s.Subject, _ = event.ParsePattern("other.>") },
		"LIMIT_GLOBAL":   func(s *published.Settings) { s.Limits.Global = testkit.Rules("99/30m", "1/1h", "").Global },
		"LIMIT_CATEGORY": func(s *published.Settings) { s.Limits.Category = testkit.Rules("9/30m", "9/30m", "").Category },
		"LIMIT_OVERRIDES": func(s *published.Settings) {
			s.Limits.Overrides = testkit.Rules("1/1h", "1/1h", "errors=1/1h").Overrides
		},
		"LIMIT_GROUP":           func(s *published.Settings) { s.Limits.Group = nil },
		"LIMIT_GROUP_OVERRIDES": func(s *published.Settings) { s.Limits.GroupOverrides = nil },
		"LIMIT_RESERVE":         func(s *published.Settings) { s.Limits.Reserve = map[string]int{"payments": 6} },
		"DEDUPE_WINDOW":         func(s *published.Settings) { s.Dedupe = time.Hour }, "EVENT_MAX_AGE": func(s *published.Settings) { s.MaxAge = 0 },
		"SLACK_PACE": func(s *published.Settings) { s.Limits.Pace = ratelimit.Tier{} }, "SLACK_CHANNEL": func(s *published.Settings) { s.Channel = "C2" },
		"SLACK_ROUTES": func(s *published.Settings) { s.Routes, _ = published.ParseRoutes("errors=C0123456") },
	}
	text, _ := settings(t).Encode()
	var document published.Document
	testkit.Check(t, json.Unmarshal([]byte(text), &document))
	if len(changes) != len(document.Settings)-1 {
		t.Errorf("%d changes for %d settings, expected one for each but NATS_MODE, which is the same everywhere", len(changes), len(document.Settings))
	}
	for name, change := range changes {
		other := settings(t)
		change(&other)
		differences := published.Compare([]*published.Variant{published.Own("a", settings(t)), published.Own("b", other)})
		if len(differences) != 1 || differences[0].Name != name {
			t.Errorf("%s: %+v", name, differences)
		}
		if deployment := strings.HasPrefix(name, "NATS_"); len(differences) == 1 && differences[0].Deployment() != deployment {
			t.Errorf("%s: another deployment: %t, expected %t", name, !deployment, deployment)
		}
	}
}

// TestTooLongSettings: the document stays within its bound, says what it leaves out, and still differs where that differs.
func TestTooLongSettings(t *testing.T) {
	long := func(n int, channel string) published.Settings {
		s := settings(t)
		var routes []string
		for i := range n {
			routes = append(routes, fmt.Sprintf("category-%d.>=%s", i, channel))
		}
		var err error
		s.Routes, err = published.ParseRoutes(strings.Join(routes, ","))
		testkit.Check(t, err)
		return s
	}
	text, fingerprint := long(5000, "C1").Encode()
	got, err := read(text, fingerprint)
	if err != nil || len(text) > published.MaxBytes || !got.RoutesUnknown || got.Routes.Len() != 0 || got.Limits.Global.String() != "100/30m+1000/24h:15m" {
		t.Errorf("%d bytes, %+v, %v", len(text), got, err)
	}
	if _, other := long(5000, "C2").Encode(); other == fingerprint {
		t.Error("other routes have the same fingerprint")
	}
	if differences := published.Compare([]*published.Variant{published.Own("a", long(5000, "C1")), published.Own("b", long(5001, "C1"))}); len(differences) != 1 || differences[0].Name != "SLACK_ROUTES" {
		t.Errorf("%+v", differences)
	}

	s := settings(t)
	var overrides []string
	for i := range 5000 {
		overrides = append(overrides, fmt.Sprintf("category-%d=1/30m", i))
	}
	s.Limits.Overrides = testkit.Rules("1/1h", "1/1h", strings.Join(overrides, ",")).Overrides
	text, fingerprint = s.Encode()
	if _, err := read(text, fingerprint); err == nil || err.Error() != "LIMIT_OVERRIDES is too long to be published" || len(text) > published.MaxBytes {
		t.Errorf("%d bytes, %v; expected that limits are missing", len(text), err)
	}
}

// TestHostileDocuments: who may write to Redis may have written a document. Nothing of a wrong one is used.
func TestHostileDocuments(t *testing.T) {
	text, _ := settings(t).Encode()
	with := func(name, value string) string {
		var document published.Document
		testkit.Check(t, json.Unmarshal([]byte(text), &document))
		document.Settings[name] = value
		changed, err := json.Marshal(document)
		testkit.Check(t, err)
		return string(changed)
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":           {"", "they are not in Redis"},
		"no JSON":           {"\x1b[2J", "no JSON"},
		"a list":            {"[]", "no JSON"},
		"null":              {"null", "the format 0, expected 1"},
		"empty":             {"{}", "the format 0, expected 1"},
		"another format":    {strings.Replace(text, `"format":1`, `"format":2`, 1), "the format 2, expected 1"},
		"no settings":       {`{"format":1}`, "NATS_MODE is missing"},
		"numbers":           {`{"format":1,"settings":{"LIMIT_GLOBAL":7}}`, "no JSON"},
		"too long":          {`{"format":1,"settings":{"X":"` + strings.Repeat("x", 1<<20) + `"}}`, "expected at most 65536"},
		"unknown":           {with("LIMIT_PLANET", "1/1h"), `"LIMIT_PLANET" is unknown to this version`},
		"left out and in":   {strings.Replace(text, `"settings"`, `"left_out":{"LIMIT_GLOBAL":"x"},"settings"`, 1), "LIMIT_GLOBAL is missing"},
		"no limit":          {with("LIMIT_GLOBAL", ""), "LIMIT_GLOBAL"},
		"a limit of 0":      {with("LIMIT_GLOBAL", "0/30m"), "LIMIT_GLOBAL"},
		"a huge limit":      {with("LIMIT_CATEGORY", "99999999999999999999/30m"), "LIMIT_CATEGORY"},
		"too many tiers":    {with("LIMIT_GLOBAL", strings.Repeat("1/1h+", 1000)), "LIMIT_GLOBAL"},
		"a wrong pattern":   {with("LIMIT_OVERRIDES", "a..b=1/1h"), "LIMIT_OVERRIDES"},
		"a wrong group":     {with("LIMIT_GROUP_OVERRIDES", "a.b=1/1h"), "LIMIT_GROUP_OVERRIDES"},
		"a wrong reserve":   {with("LIMIT_RESERVE", "a=-1"), "LIMIT_RESERVE"},
		"too much reserved": {with("LIMIT_RESERVE", "a=5000"), "slots are reserved"},
		"an endless window": {with("DEDUPE_WINDOW", "999999h"), "DEDUPE_WINDOW"},
		"a negative age":    {with("EVENT_MAX_AGE", "-1s"), "EVENT_MAX_AGE"},
		"a wrong pace":      {with("SLACK_PACE", "1"), "SLACK_PACE"},
		"a wrong mode":      {with("NATS_MODE", "core"), "NATS_MODE"},
		"a wrong subject":   {with("NATS_SUBJECT", "notify"), "NATS_SUBJECT"},
		"no stream":         {with("NATS_STREAM", ""), "NATS_STREAM"},
		"a wrong route":     {with("SLACK_ROUTES", "errors"), "SLACK_ROUTES"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(test.text, published.Fingerprint(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v, %.500v; expected %q", got, err, test.want)
			}
		})
	}
	if _, err := read(text, "0123456789abcdef"); err == nil || !strings.Contains(err.Error(), "have the fingerprint") {
		t.Errorf("%v, expected that the document is not the one that was asked for", err)
	}
}

func FuzzDocuments(f *testing.F) {
	text, _ := published.Settings{}.Encode()
	f.Add(text)
	f.Add(`{"format":1,"settings":{"LIMIT_GLOBAL":"1/1h","LIMIT_OVERRIDES":"a=1/1h,b.>=2/1h"},"left_out":{"SLACK_ROUTES":"x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := read(text, published.Fingerprint(text))
		if err != nil {
			return
		}
		again, fingerprint := settings.Encode()
		if _, err := read(again, fingerprint); err != nil && !settings.RoutesUnknown {
			t.Errorf("%q is read, and what is written of it is not: %v", text, err)
		}
	})
}
