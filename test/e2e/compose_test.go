//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// What each profile starts.
var (
	realServices = []string{"nats", "notifier", "redis", "secrets"}
	demoServices = []string{"burst", "fake-slack", "nats-demo", "notifier-demo", "redis-demo", "secrets-demo"}
	onlookers    = []string{"grafana", "prometheus"}
	commands     = []string{"cli", "dead", "publish"}
)

// testProfiles: a plain "up" is the real thing, "--profile demo" is the demo and nothing of the real thing.
// This is what the profile "" in docker-compose.yml is for.
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
	names := []string{"SLACK_BOT_TOKEN_FILE", "SLACK_WEBHOOK_URL_FILE", "ADMIN_TOKEN_FILE"}
	for _, variable := range settings.Variables() {
		names = append(names, variable.Name)
	}
	var shell []string
	for _, name := range names {
		shell = append(shell, name+"=set-"+name)
	}
	arrived := e.workerEnvironment(t, "", shell...)
	for _, name := range names {
		want := "set-" + name
		switch name {
		case "ADMIN_ADDR": // the health check and the published port go by it
			want = "0.0.0.0:8080"
		case "NATS_URL", "REDIS_URL": // a shell has them for other tools
			want = ""
		}
		if got := arrived[name]; got != want {
			t.Errorf("%s arrives as %q, expected %q", name, got, want)
		}
	}

	t.Run("servers of one's own", func(t *testing.T) { // .env names them, and no shell
		got := e.workerEnvironment(t, "", "NATS_URL=nats://shell", "REDIS_URL=redis://shell")
		for _, name := range []string{"NATS_URL", "REDIS_URL"} {
			if got[name] != "" || got[name+"_FILE"] == "" {
				t.Errorf("with a shell's: %s is %q and %s_FILE %q, expected only the second", name, got[name], name, got[name+"_FILE"])
			}
		}
		got = e.workerEnvironment(t, "NATS_URL=nats://own\nNATS_URL_FILE=\n", "NATS_URL=nats://shell")
		if got["NATS_URL"] != "nats://own" || got["NATS_URL_FILE"] != "" || got["REDIS_URL"] != "" || got["REDIS_URL_FILE"] == "" {
			t.Errorf("with a NATS in .env: %v", got)
		}
		got = e.workerEnvironment(t, "REDIS_URL=redis://own\nREDIS_URL_FILE=\n", "REDIS_URL=redis://shell")
		if got["REDIS_URL"] != "redis://own" || got["REDIS_URL_FILE"] != "" || got["NATS_URL"] != "" || got["NATS_URL_FILE"] == "" {
			t.Errorf("with a Redis in .env: %v", got)
		}
	})

	t.Run("what is no setting", func(t *testing.T) { // check names it
		if got := e.workerEnvironment(t, "LIMIT_GLOBL=1/1h\n")["LIMIT_GLOBL"]; got != "1/1h" {
			t.Errorf("LIMIT_GLOBL arrives as %q, expected it as it is in the file", got)
		}
	})
}

// workerEnvironment is the environment that compose gives to a worker, with this content of .env and these
// variables of the shell.
func (e *engine) workerEnvironment(t *testing.T, file string, shell ...string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "team-b.env")
	kit.Check(t, os.WriteFile(path, []byte(file), 0o600))
	var config struct {
		Services map[string]struct{ Environment map[string]string }
	}
	out := e.project(t, "config", nil, append(shell, "NOTIFIER_ENV_FILE="+path)...).compose(t, "config", "--format", "json")
	kit.Check(t, json.Unmarshal([]byte(out), &config))
	return config.Services["notifier"].Environment
}

// testAsking: commands answer while a server is down or has other settings than those that run, and leave it
// as it is.
func testAsking(t *testing.T, e *engine) {
	p := e.project(t, "asking", nil, "USER=ann", "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T0/B0/x")
	p.up(t, "--wait", "nats", "redis")
	ask := func(arguments ...string) (string, error) {
		return p.try(commandDeadline, append([]string{"run", "--rm", "-T", "--pull", "never"}, arguments...)...)
	}
	_, err := ask("cli", "mute", "add", "errors", "-for", "1h")
	kit.Check(t, err)
	out, err := ask("cli", "mute", "list")
	kit.Check(t, err)
	if !strings.Contains(out, " ann") {
		t.Errorf("who has muted is not ann:\n%s", out)
	}
	_, err = ask("cli", "dead", "list")
	if _, said := exitOf(t, err); !strings.Contains(said, "docker compose run --rm dead has them") {
		t.Errorf("dead with the permissions of a worker: %s", said)
	}

	p.compose(t, "stop", "redis")
	states := func() string { return p.compose(t, "ps", "-a", "--format", "{{.Service}} {{.ID}} {{.State}}") }
	before := states()
	p = e.project(t, "asking", nil, "NATS_SUBJECT=alerts.>", "REDIS_NAMESPACE=other")
	_, err = ask("cli", "status")
	if code, said := exitOf(t, err); code != 1 || !strings.Contains(said, "REDIS_URL") {
		t.Errorf("status without Redis: exit code %d with %s; expected 1 and REDIS_URL named", code, said)
	}
	_, err = ask("dead", "list")
	kit.Check(t, err)
	if _, err = ask("publish", "errors", "hi"); err == nil {
		t.Error("publish to alerts.errors, expected a denial: NATS has been given other permissions by asking")
	}
	if after := states(); after != before || !strings.Contains(before, " exited") {
		t.Errorf("before\n%s\nand after asking\n%s", before, after)
	}
}
