package config_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"notifier/internal/status/config"
	"notifier/test/kit"
)

// least is the least text that a replica has.
var least = map[string]string{
	"NATS_SUBJECT": "notify.>", "LIMIT_GLOBAL": "100/30m", "LIMIT_CATEGORY": "10/30m", "DEDUPE_WINDOW": "24h",
}

func with(name, value string) map[string]string {
	text := maps.Clone(least)
	text[name] = value
	return text
}

// Any client of Redis may have written a snapshot.
func TestHostileTextIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := config.Parse(least); err != nil {
		t.Fatal(err)
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprintf("c%d=1/1m", i)
	}
	hostile := []map[string]string{
		nil, {}, {"LIMIT_GLOBAL": "100/30m"},
		with("LIMIT_GLOBAL", ""), with("LIMIT_GLOBAL", "0/30m"), with("LIMIT_GLOBAL", "1/30m\x1b[31m"),
		with("LIMIT_CATEGORY", "1/99999h"), with("LIMIT_OVERRIDES", "a=1/1m,a=2/1m\nb"), with("LIMIT_OVERRIDES", strings.Join(many, ",")),
		with("LIMIT_GROUP_OVERRIDES", "a.b=1/1m"), with("LIMIT_RESERVE", "a=-1"), with("LIMIT_RESERVE", "a=101"),
		with("SLACK_ROUTES", "a"), with("DEDUPE_WINDOW", "-1h"), with("DEDUPE_WINDOW", "0s"),
		with("DEDUPE_WINDOW", "9999h"), with("NATS_SUBJECT", "notify"), with("LIMIT_PLANET", "1/1m"),
	}
	for _, text := range hostile {
		if _, err := config.Parse(text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.200q: %v, expected an error of one line", fmt.Sprint(text), err)
		}
	}
}

func TestLongTextIsLeftOut(t *testing.T) {
	t.Parallel()
	routes := make([]string, 1500)
	for i := range routes {
		routes[i] = fmt.Sprintf("c%d=C0123456", i)
	}
	d, err := config.Parse(least)
	kit.Check(t, err)
	short := d.Snapshot("")
	d.Routes, err = config.ParseRoutes(strings.Join(routes, ","))
	kit.Check(t, err)
	if long := d.Snapshot(""); long.Text != nil || long.Hash == short.Hash {
		t.Errorf("%d entries of text, hash %s, and without routes %s", len(long.Text), long.Hash, short.Hash)
	}
}

// Whatever is accepted is written back as it means.
func TestAcceptedTextIsStable(t *testing.T) {
	t.Parallel()
	names := []string{
		"NATS_SUBJECT", "LIMIT_GLOBAL", "LIMIT_CATEGORY", "LIMIT_OVERRIDES", "LIMIT_GROUP", "LIMIT_GROUP_OVERRIDES", "LIMIT_RESERVE",
		"DEDUPE_WINDOW", "SLACK_CHANNEL", "SLACK_ROUTES",
	}
	pieces := rapid.SampledFrom([]string{
		"a", "b.", ">", "*", "=", ",", "+", "/", ":", "10", "1/1m", "30m", "1h", "fixed", "off", "#x", "C01", "\n", "\x00", "é", " ", "-", "<!here>",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := maps.Clone(least)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "names") {
			text[name] = strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(t, name), "")
		}
		d, err := config.Parse(text)
		if err != nil {
			return
		}
		again, err := config.Parse(d.Text())
		if err != nil {
			t.Fatalf("%q becomes %q: %v", text, d.Text(), err)
		}
		if d.Snapshot("").Hash != again.Snapshot("").Hash {
			t.Fatalf("%q becomes %q and then %q", text, d.Text(), again.Text())
		}
	})
}
