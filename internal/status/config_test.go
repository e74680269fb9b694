package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/test/kit"
)

// exact also compares what is not exported; an empty list is as good as none.
var (
	exact      = cmp.Exporter(func(reflect.Type) bool { return true })
	emptyIsNil = cmpopts.EquateEmpty()
)

// beaten is a configuration as a reader of the heartbeat has it.
func beaten(own, of Config) (Config, error) {
	text, err := json.Marshal(stats.Heartbeat{Settings: of.Shown()})
	if err != nil {
		return Config{}, err
	}
	var beat stats.Heartbeat
	if err := json.Unmarshal(text, &beat); err != nil {
		return Config{}, err
	}
	return own.with(beat.Settings)
}

// TestAConfigurationComesBack: a reader has what the worker has, and decides with the same limits.
func TestAConfigurationComesBack(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"all":     func(*Config) {},
		"webhook": func(c *Config) { c.Channel = "" },
		"few": func(c *Config) {
			*c = Config{Dedupe: time.Second, Stream: "S", Consumer: "c", Subject: c.Subject}
			c.Limits = kit.Rules("1/1ms", "1000000/744h:fixed", "")
		},
	} {
		want := changed(t, change)
		got, err := beaten(Config{}, want)
		kit.Check(t, err)
		want.Others = "" // a hash cannot be read
		if diff := cmp.Diff(want, got, exact, emptyIsNil); diff != "" {
			t.Errorf("%s (-worker +reader):\n%s", name, diff)
		}
	}
}

// TestAHeartbeatIsBounded: of long lists it has a hash, which still differs where the lists do. A reader with
// the same list uses its own.
func TestAHeartbeatIsBounded(t *testing.T) {
	long := func(n int, limit string) Config {
		var overrides, routes []string
		for i := range n {
			overrides = append(overrides, fmt.Sprintf("category-%d=%s", i, limit))
			routes = append(routes, fmt.Sprintf("category-%d=#c", i))
		}
		return changed(t, func(c *Config) {
			c.Limits.Overrides = kit.Rules("1/1h", "1/1h", strings.Join(overrides, ",")).Overrides
			c.Routes, _ = ParseRoutes(strings.Join(routes, ","))
		})
	}
	of := long(2000, "1/1h")
	text, err := json.Marshal(of.Shown())
	kit.Check(t, err)
	if len(text) > 2000 {
		t.Errorf("%d bytes of 2000 overrides and routes", len(text))
	}
	got, err := beaten(of, of)
	kit.Check(t, err)
	if got.Limits.LimitFor("category-7").String() != "1/1h" || got.RoutesUnknown || got.Routes.Len() != 2000 {
		t.Errorf("a reader with the same settings has %+v", got)
	}
	_, err = beaten(Config{}, of)
	if err == nil || err.Error() != "LIMIT_OVERRIDES is too long for a heartbeat" {
		t.Errorf("%v, expected that limits are missing", err)
	}
	of.Limits.Overrides = kit.Rules("1/1h", "1/1h", "").Overrides
	if got, err = beaten(Config{}, of); err != nil || !got.RoutesUnknown || got.Routes.Len() != 0 {
		t.Errorf("%v, routes unknown: %t, %d routes", err, got.RoutesUnknown, got.Routes.Len())
	}
	differences, _ := differ(map[string]Config{"a": long(2000, "1/1h"), "b": long(2000, "2/1h")})
	if len(differences) != 1 || differences[0].Name != "LIMIT_OVERRIDES" {
		t.Errorf("%+v", differences)
	}
}

// TestHostileHeartbeats: anybody with access to Redis may have written a heartbeat. Nothing of a wrong one is
// used.
func TestHostileHeartbeats(t *testing.T) {
	for name, test := range map[string]struct{ variable, text, want string }{
		"no limit":          {"LIMIT_GLOBAL", "", "LIMIT_GLOBAL"},
		"a limit of 0":      {"LIMIT_GLOBAL", "0/30m", "LIMIT_GLOBAL"},
		"a huge limit":      {"LIMIT_CATEGORY", "99999999999999999999/30m", "LIMIT_CATEGORY"},
		"too many tiers":    {"LIMIT_GLOBAL", strings.Repeat("1/1h+", 500), "LIMIT_GLOBAL"},
		"a wrong pattern":   {"LIMIT_OVERRIDES", "a..b=1/1h", "LIMIT_OVERRIDES"},
		"a wrong group":     {"LIMIT_GROUP_OVERRIDES", "a.b=1/1h", "LIMIT_GROUP_OVERRIDES"},
		"a wrong reserve":   {"LIMIT_RESERVE", "a=-1", "LIMIT_RESERVE"},
		"too much reserved": {"LIMIT_RESERVE", "a=5000", "slots are reserved"},
		"no window":         {"DEDUPE_WINDOW", "x", "DEDUPE_WINDOW"},
		"no age":            {"EVENT_MAX_AGE", "x", "EVENT_MAX_AGE"},
		"a wrong pace":      {"SLACK_PACE", "1", "SLACK_PACE"},
		"a wrong subject":   {"NATS_SUBJECT", "notify", "NATS_SUBJECT"},
		"a wrong route":     {"SLACK_ROUTES", "errors", "SLACK_ROUTES"},
		"a foreign hash":    {"LIMIT_RESERVE", hashPrefix + "0", "LIMIT_RESERVE is too long"},
		"a hash of a limit": {"LIMIT_GLOBAL", hashPrefix, "LIMIT_GLOBAL is too long"},
		"an unknown limit":  {"LIMIT_PLANET", "1/1h", "LIMIT_PLANET is unknown"},
	} {
		shown := configured(t).Shown()
		shown.Values = maps.Clone(shown.Values)
		shown.Values[test.variable] = test.text
		got, err := configured(t).with(shown)
		if err == nil {
			t.Errorf("%s: %+v, expected the error %q", name, got, test.want)
			continue
		}
		if text := err.Error(); !strings.Contains(text, test.want) || len(text) > 400 || strings.Contains(text, "\n") {
			t.Errorf("%s: %.500s; expected %q on one line", name, text, test.want)
		}
	}
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, shown := range map[string]stats.Settings{
		"a long value": {Values: map[string]string{"LIMIT_GLOBAL": strings.Repeat("1", 1<<20)}},
		"a long name":  {Values: map[string]string{strings.Repeat("x", 1<<20): "1/1h"}},
		"many values":  {Values: many},
		"a long hash":  {Others: strings.Repeat("x", 1<<20)},
	} {
		replica := stats.Replica{ID: "a", Heartbeat: stats.Heartbeat{Settings: shown}}
		if variants := variantsOf([]stats.Replica{replica}); len(variants) > 0 {
			t.Errorf("%s: it counts as settings", name)
		}
	}
}

func FuzzHeartbeats(f *testing.F) {
	text, _ := json.Marshal(Config{Limits: ratelimit.Rules{}}.Shown())
	f.Add(string(text))
	f.Add(`{"values":{"LIMIT_GLOBAL":"1/1h","LIMIT_CATEGORY":"1/1h","LIMIT_OVERRIDES":"a=1/1h,b.>=2/1h",` +
		`"DEDUPE_WINDOW":"1h","EVENT_MAX_AGE":"0s","SLACK_PACE":"off","NATS_SUBJECT":"n.>"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var shown stats.Settings
		if json.Unmarshal([]byte(text), &shown) != nil || !shows(shown) {
			return
		}
		c, err := Config{}.with(shown)
		if err != nil {
			return
		}
		if _, err := (Config{}).with(c.Shown()); err != nil && !strings.Contains(err.Error(), "too long") {
			t.Errorf("%q is read, and what is written of it is not: %v", text, err)
		}
	})
}
