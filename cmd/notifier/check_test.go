//go:build !production

package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
)

// checkAgainst runs "notifier check" with settings and gives its output.
func checkAgainst(t *testing.T, settings map[string]string, want int) *output {
	t.Helper()
	p := spawn(t, "notifier", settings, "check")
	if code := p.code(t); code != want {
		t.Errorf("exit code %d, expected %d:\n%s%s", code, want, p.out.String(), p.errOut.String())
	}
	return &p.out
}

// tells expects a line that begins with one of the levels, then the subject, and has the text in it.
func tells(t *testing.T, out *output, level, subject, text string) {
	t.Helper()
	for _, line := range out.lines(text) {
		if strings.HasPrefix(line, level+" ") && strings.Fields(line)[1] == subject {
			return
		}
	}
	t.Errorf("no line %q of %s with %q in:\n%s", level, subject, text, out.String())
}

// checkSettingsOf are settings with which a check has nothing to say against Slack.
func checkSettingsOf(t *testing.T) map[string]string {
	t.Helper()
	_, _, settings := beside(t)
	settings["SLACK_BOT_TOKEN"], settings["SLACK_CHANNEL"] = "xoxb-"+secret, "C0123"
	return settings
}

// TestCheckHangs: a server that takes connections and says nothing is given up, and a person is told meanwhile.
func TestCheckHangs(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	silent, err := net.Listen("tcp", anyAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // what is never accepted hangs as well
	addr := silent.Addr().String()
	settings["NATS_URL"], settings["REDIS_URL"], settings["SLACK_API_URL"] = "nats://"+addr, "redis://"+addr, "http://"+addr+"/"
	began := time.Now()
	p := spawn(t, "notifier", settings, "check")
	if code := p.code(t); code != exitFailed {
		t.Errorf("exit code %d, expected 1", code)
	}
	if took := time.Since(began); took > 2*checkPatience {
		t.Errorf("it took %s, expected about %s", took, checkPatience)
	}
	for _, subject := range []string{"nats", "redis", "slack"} {
		if len(p.out.lines("fail  "+subject)) != 1 {
			t.Errorf("%s has not failed:\n%s", subject, p.out.String())
		}
	}
	if !strings.Contains(p.errOut.String(), "waiting for nats, ") {
		t.Errorf("on stderr %q, expected what is waited for", p.errOut.String())
	}
}

// TestCheckSettings: settings that are good each by itself and bad together.
func TestCheckSettings(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	for name, value := range map[string]string{
		"LIMIT_GLOBAL": "20/30m0s+5/1m", "LIMIT_CATEGORY": "20/30m+6/1m", "LIMIT_OVERRIDES": "errors=30/10m,db=19/30m,tight=1000/1h+1/1s",
		"DEDUPE_WINDOW": "10m", "SHUTDOWN_TIMEOUT": "5s", "ADMIN_ADDR": "0.0.0.0:8080", "SLACK_MARKUP": "allow", "EVENT_MAX_AGE": "1h",
	} {
		settings[name] = value
	}
	out := checkAgainst(t, settings, exitDone)
	tells(t, out, "ok", "limits", "20/30m+5/1m in all, 20/30m+6/1m per category")
	tells(t, out, "warn", "limits", "the category limit 20/30m+6/1m lets through all that the global limit 20/30m+5/1m does")
	tells(t, out, "warn", "limits", "the limit 30/10m for errors lets through all")
	tells(t, out, "ok", "limits", "19/30m for db")
	tells(t, out, "note", "limits", "DEDUPE_WINDOW 10m is shorter than the longest limit, so it counts as 1h")
	tells(t, out, "warn", "settings", "SHUTDOWN_TIMEOUT 5s is shorter than SLACK_TIMEOUT 10s")
	tells(t, out, "note", "settings", "ADMIN_ADDR 0.0.0.0:8080 can be reached from the network")
	tells(t, out, "note", "settings", "SLACK_MARKUP is allow")
	for _, never := range []string{"for db lets", "for tight lets", "EVENT_MAX_AGE is 0"} {
		if strings.Contains(out.String(), never) {
			t.Errorf("%q in:\n%s", never, out.String())
		}
	}
}

// TestCheckJSON: the object has every setting, and what the lines say.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	settings["SLACK_ROUTES"] = "errors=<!here>\x1b[31m"
	p := spawn(t, "notifier", settings, "check", "-json")
	if code := p.code(t); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	var got checkJSON
	if err := json.Unmarshal([]byte(p.out.String()), &got); err != nil {
		t.Fatal(err)
	}
	sources := map[string]checkedSetting{}
	for _, s := range got.Settings {
		sources[s.Name] = s
	}
	for _, name := range settingNames() {
		source, found := sources[name]
		_, set := settings[name]
		if want := map[bool]string{true: fromEnvironment, false: fromDefault}[set]; !found || source.Source != want {
			t.Errorf("%s: %+v, expected it from the %s", name, source, want)
		}
	}
	if value := sources["SLACK_ROUTES"].Value; value != "errors=<!here>?[31m" {
		t.Errorf("SLACK_ROUTES %q, expected it as it is but for what orders a terminal about", value)
	}
	if !got.OK || len(got.Checks) < 10 {
		t.Errorf("ok %t, %d checks", got.OK, len(got.Checks))
	}
}

// TestFindingColours: each level has its colour, where there are colours.
func TestFindingColours(t *testing.T) {
	t.Parallel()
	for l, want := range map[level]string{
		levelOK: "\x1b[32mok  \x1b[0m  nats      x; y\n", levelWarn: "\x1b[33mwarn\x1b[0m  nats      x; y\n",
		levelFail: "\x1b[31mfail\x1b[0m  nats      x; y\n", levelNote: "\x1b[1mnote\x1b[0m  nats      x; y\n",
	} {
		var out strings.Builder
		f := finding{level: l, text: "x", advice: "y"}
		if err := f.write(&out, terminal{person: true, colour: true}, "nats"); err != nil || out.String() != want {
			t.Errorf("%q, %v; expected %q", out.String(), err, want)
		}
	}
}

// TestNeverFirst: which limits of a category do nothing beside the global one.
func TestNeverFirst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		category, global string
		want             bool
	}{
		{"10/30m", "100/30m", false}, {"100/30m", "100/30m", true}, {"200/30m", "100/30m", true}, {"100/10m", "100/30m", true},
		{"100/1h", "100/30m", false}, {"200/30m+1/5s", "100/30m", false}, {"10/1m", "100/30m+5/1m", true},
	} {
		category, err := ratelimit.ParseLimit(test.category)
		if err != nil {
			t.Fatal(err)
		}
		global, err := ratelimit.ParseLimit(test.global)
		if err != nil {
			t.Fatal(err)
		}
		if got := neverFirst(category, global); got != test.want {
			t.Errorf("%s beside %s: %t, expected %t", test.category, test.global, got, test.want)
		}
	}
}
