package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"notifier/internal/preflight"
	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// checkAgainst runs "notifier check" with settings and returns its output.
func checkAgainst(t *testing.T, settings map[string]string, want int) *output {
	t.Helper()
	p := start(t, settings, "check")
	if code := p.code(t); code != want {
		t.Errorf("exit code %d, expected %d:\n%s%s", code, want, p.out.String(), p.errOut.String())
	}
	return &p.out
}

// wantFinding expects a line that begins with one of the levels, then the area, and contains the text.
func wantFinding(t *testing.T, out *output, level, area, text string) {
	t.Helper()
	for _, line := range out.lines(text) {
		if strings.HasPrefix(line, level+" ") && strings.Fields(line)[1] == area {
			return
		}
	}
	t.Errorf("no line %q of %s with %q in:\n%s", level, area, text, out.String())
}

// checkSettingsOf are settings with which a check finds nothing wrong with Slack.
func checkSettingsOf(t *testing.T) map[string]string {
	t.Helper()
	_, _, settings := startServices(t)
	settings["SLACK_BOT_TOKEN"], settings["SLACK_CHANNEL"] = "xoxb-"+secret, "C0123"
	return settings
}

// TestCheckHangs: a server that takes connections and never answers is given up, and the user sees what is
// waited for.
func TestCheckHangs(t *testing.T) {
	t.Parallel()
	settings := checkSettingsOf(t)
	silent, err := net.Listen("tcp", ephemeralAddr)
	kit.Check(t, err)
	defer silent.Close() // what is never accepted hangs as well
	addr := silent.Addr().String()
	settings["NATS_URL"], settings["REDIS_URL"], settings["SLACK_API_URL"] = "nats://"+addr, "redis://"+addr, "http://"+addr+"/"
	began := time.Now()
	p := start(t, settings, "check")
	p.ends(t, exitFailed)
	if took := time.Since(began); took > 2*preflight.Timeout {
		t.Errorf("it took %s, expected about %s", took, preflight.Timeout)
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

// TestCheckJSON: the object has every setting, and what the lines say.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	env := checkSettingsOf(t)
	env["SLACK_ROUTES"] = "errors=<!here>\x1b[31m"
	p := start(t, env, "check", "-json")
	if code := p.code(t); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	var got checkJSON
	kit.Check(t, json.Unmarshal([]byte(p.out.String()), &got))
	sources := map[string]checkedSetting{}
	for _, s := range got.Settings {
		sources[s.Name] = s
	}
	for _, variable := range settings.Variables() {
		source, found := sources[variable.Name]
		_, set := env[variable.Name]
		if want := map[bool]string{true: settings.FromEnvironment, false: settings.FromDefault}[set]; !found || source.Source != want {
			t.Errorf("%s: %+v, expected it from the %s", variable.Name, source, want)
		}
	}
	if value := sources["SLACK_ROUTES"].Value; value != "errors=<!here>?[31m" {
		t.Errorf("SLACK_ROUTES %q, expected it as it is, except for what controls a terminal", value)
	}
	if !got.OK || len(got.Checks) < 10 {
		t.Errorf("ok %t, %d checks", got.OK, len(got.Checks))
	}
}

// TestCheckStrict: servers that are set up as the documents have it leave -strict nothing to warn of.
func TestCheckStrict(t *testing.T) {
	t.Parallel()
	settings := securedWorker(t, startSecured(t, securityBlock(t, "nats")))
	server := redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always")
	server.SetUser(t, secret, "notifier", append(redisUser(t), "+config|get")...)
	settings["REDIS_URL"] = userURL(server, "notifier")
	delete(settings, "SHUTDOWN_TIMEOUT") // a short one is a warning
	check := func(want int, text string) {
		t.Helper()
		p := start(t, settings, "check", "-strict")
		if code := p.code(t); code != want || !strings.Contains(p.errOut.String(), text) {
			t.Errorf("exit code %d, %s; expected %d, %q\n%s", code, p.errOut.String(), want, text, p.out.String())
		}
	}
	check(exitFailed, "1 warning, and -strict allows none: redis")
	server.SetUser(t, secret, "default", "resetpass") // nobody else may log in
	check(exitDone, "")
}
