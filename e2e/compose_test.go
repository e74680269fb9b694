//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"notifier/internal/testkit"
)

// What each profile starts.
var (
	realServices = []string{"nats", "notifier", "redis", "secrets"}
	demoServices = []string{"burst", "fake-slack", "nats-demo", "notifier-demo", "redis-demo", "secrets-demo"}
	onlookers    = []string{"grafana", "prometheus"}
	commands     = []string{"dead", "publish"}
)

// testProfiles: a plain "up" is the real thing, "--profile demo" is the demo and nothing of the real thing. This is what
// the profile "" in docker-compose.yml is for.
func testProfiles(t *testing.T, e *engine) {
	with := func(services ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(services...))) }
	for _, test := range []struct {
		name     string
		profiles []string
		settings []string
		want     []string
	}{
		{"none", nil, nil, realServices},
		{"none, with an empty COMPOSE_PROFILES", nil, []string{"COMPOSE_PROFILES="}, realServices},
		{"slack", []string{"slack"}, nil, realServices},
		{"demo", []string{"demo"}, nil, demoServices},
		{"demo by COMPOSE_PROFILES", nil, []string{"COMPOSE_PROFILES=demo"}, demoServices},
		{"observability", []string{"observability"}, nil, with(realServices, onlookers)},
		{"demo-observability", []string{"demo-observability"}, nil, with(demoServices, onlookers)},
		{"all", []string{"*"}, nil, with(realServices, demoServices, onlookers, commands)},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := e.project(t, "config", test.profiles, test.settings...)
			p.compose(t, "config", "--quiet")
			got := strings.Fields(p.compose(t, "config", "--services"))
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("services %v, expected %v", got, test.want)
			}
		})
	}
}

// testSettings: each variable that the program reads can be set through compose, and arrives.
func testSettings(t *testing.T, e *engine) {
	files, err := filepath.Glob("../internal/settings/*.go")
	testkit.Check(t, err)
	tag := regexp.MustCompile("`envconfig:\"([A-Z_]+)\"")
	var names []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		testkit.Check(t, err)
		for _, match := range tag.FindAllStringSubmatch(string(source), -1) {
			names = append(names, match[1])
		}
	}
	names = append(names, "SLACK_BOT_TOKEN_FILE", "SLACK_WEBHOOK_URL_FILE", "ADMIN_TOKEN_FILE")
	if len(names) < 30 {
		t.Fatalf("found only %d settings in the sources: %v", len(names), names)
	}
	settings := make([]string, len(names))
	for i, name := range names {
		settings[i] = name + "=set-" + name
	}
	var config struct {
		Services map[string]struct{ Environment map[string]string }
	}
	out := e.project(t, "config", nil, settings...).compose(t, "config", "--format", "json")
	testkit.Check(t, json.Unmarshal([]byte(out), &config))
	for _, name := range names {
		want := "set-" + name
		if name == "ADMIN_ADDR" { // the health check and the published port go by it
			want = "0.0.0.0:8080"
		}
		if got := config.Services["notifier"].Environment[name]; got != want {
			t.Errorf("%s arrives as %q, expected %q", name, got, want)
		}
	}

	t.Run("servers of one's own", func(t *testing.T) { // with their URL in .env, the file with the one of compose is not read
		for name, own := range map[string][]string{"NATS_URL": {"NATS_URL=nats://own"}, "REDIS_URL": {"REDIS_URL=redis://own"}} {
			other := map[string]string{"NATS_URL": "REDIS_URL", "REDIS_URL": "NATS_URL"}[name]
			config.Services = nil
			out := e.project(t, "config", nil, own...).compose(t, "config", "--format", "json")
			testkit.Check(t, json.Unmarshal([]byte(out), &config))
			got := config.Services["notifier"].Environment
			if file, set := got[name+"_FILE"]; set || name+"="+got[name] != own[0] {
				t.Errorf("with %s: %s is %q and %s_FILE %q, expected only the first", own[0], name, got[name], name, file)
			}
			if got[other] != "" || got[other+"_FILE"] == "" {
				t.Errorf("with %s: %s is %q and %s_FILE %q, expected only the second", own[0], other, got[other], other, got[other+"_FILE"])
			}
		}
	})

	t.Run(".env.example", func(t *testing.T) {
		text, err := os.ReadFile("../.env.example")
		testkit.Check(t, err)
		compose, err := os.ReadFile("../docker-compose.yml")
		testkit.Check(t, err)
		for _, match := range regexp.MustCompile(`(?m)^#?([A-Z_]+)=`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(compose), "${"+match[1]+":-") {
				t.Errorf(".env.example has %s, which docker-compose.yml does not use", match[1])
			}
		}
	})
}

// testNoSlack: without any Slack setting the worker says what is missing, and touches nothing.
func testNoSlack(t *testing.T, e *engine) {
	p := e.project(t, "noslack", nil)
	t.Cleanup(func() { p.down(t) })
	_, err := p.try(commandDeadline, "run", "--rm", "-T", "--no-deps", "--pull", "never", "notifier")
	code, said := exitOf(t, err)
	if code != 2 || !strings.Contains(said, "SLACK_BOT_TOKEN") || !strings.Contains(said, "SLACK_WEBHOOK_URL") {
		t.Errorf("exit code %d with %q; expected 2 and both variables named", code, said)
	}
}
