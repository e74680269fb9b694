//go:build e2e

package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// service is the part of "docker compose config" that the tests read.
type service struct {
	Image       string
	Command     []string
	Environment map[string]string
	Healthcheck struct{ Test []string }
	ReadOnly    bool     `json:"read_only"`
	CapDrop     []string `json:"cap_drop"`
	SecurityOpt []string `json:"security_opt"`
	Ports       []struct {
		HostIP string `json:"host_ip"`
	}
}

// config returns all services, also the ones with a profile.
func (p *project) config(t *testing.T) map[string]service {
	t.Helper()
	var config struct{ Services map[string]service }
	kit.Check(t, json.Unmarshal([]byte(p.compose(t, "--profile", "*", "config", "--format", "json")), &config))
	return config.Services
}

// testSettings: each setting in .env reaches the workers, and so do misspelt ones, for "check". NATS_URL
// and REDIS_URL are fixed, because shells have them for other tools.
func testSettings(t *testing.T, e *engine) {
	names := []string{"SLACK_BOT_TOKEN_FILE", "SLACK_WEBHOOK_URL_FILE", "ADMIN_TOKEN_FILE", "LIMIT_GLOBL"}
	for _, variable := range settings.Variables() {
		names = append(names, variable.Name)
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, name+"=set-"+name)
	}
	p := e.project(t, "config", nil, lines...)
	p.environment = append(p.environment, "NATS_URL=nats://shell", "REDIS_URL=redis://shell", "LIMIT_GLOBAL=1/1h")
	services := p.config(t)
	fixed := map[string]string{
		"ADMIN_ADDR": "0.0.0.0:8080", // the health check and the published port rely on it
		"NATS_URL":   "nats://notifier:" + p.passwords["NATS_WORKER_PASSWORD"] + "@nats:4222",
		"REDIS_URL":  "redis://notifier:" + p.passwords["REDIS_PASSWORD"] + "@redis:6379/0",
		// Workers need neither.
		"NATS_PUBLISHER_PASSWORD": "",
		"NATS_OPERATOR_PASSWORD":  "",
	}
	for _, name := range append(names, "NATS_PUBLISHER_PASSWORD", "NATS_OPERATOR_PASSWORD") {
		want, isFixed := fixed[name]
		if !isFixed {
			want = "set-" + name
		}
		if got := services["notifier"].Environment[name]; got != want {
			t.Errorf("%s reaches the workers as %q, expected %q", name, got, want)
		}
	}
	operator := "nats://operator:" + p.passwords["NATS_OPERATOR_PASSWORD"] + "@nats:4222"
	if got := services["cli"].Environment["NATS_URL"]; got != operator {
		t.Errorf("commands connect to %q, expected %q", got, operator)
	}
	for name, password := range p.passwords {
		for server, prefix := range map[string]string{"nats": "NATS_", "redis": "REDIS"} {
			has := strings.Contains(strings.Join(mapValues(services[server].Environment), " "), password)
			if want := strings.HasPrefix(name, prefix); has != want {
				t.Errorf("%s has %s: %v, expected %v", server, name, has, want)
			}
		}
	}

	t.Run("the demo has nothing of a real account", func(t *testing.T) {
		for name, service := range e.project(t, "config", []string{demoFile}, lines...).config(t) {
			for variable, value := range service.Environment {
				if strings.HasPrefix(value, "set-") && !strings.HasPrefix(variable, "LIMIT_") {
					t.Errorf("%s of the demo has %s from .env", name, variable)
				}
			}
		}
	})

	t.Run("no passwords", func(t *testing.T) {
		_, err := e.run(e.ctx, commandDeadline, "docker", "compose", "--env-file", "/dev/null", "config", "--quiet")
		if _, said := exitOf(t, err); !strings.Contains(said, "run sh deploy/init.sh") {
			t.Errorf("without passwords compose says %s", said)
		}
	})
}

func mapValues(values map[string]string) (all []string) {
	for _, value := range values {
		all = append(all, value)
	}
	return all
}

// testCli: commands work while a server is down, and leave all services as they are.
func testCli(t *testing.T, e *engine) {
	p := e.project(t, "cli", nil)
	p.up(t, "--wait", "nats", "redis")
	cli := func(arguments ...string) (string, error) {
		return p.try(commandDeadline, slices.Concat([]string{"run", "--rm", "-T", "--pull", "never", "-e", "USER=ann", "cli"}, arguments)...)
	}
	_, err := cli("mute", "add", "errors", "-for", "1h")
	kit.Check(t, err)
	out, err := cli("mute", "list")
	kit.Check(t, err)
	if !strings.Contains(out, " ann") {
		t.Errorf("the mute is not ann's:\n%s", out)
	}
	p.compose(t, "stop", "redis")
	states := func() string { return p.compose(t, "ps", "-a", "--format", "{{.Service}} {{.ID}} {{.State}}") }
	before := states()
	_, err = cli("status")
	if code, said := exitOf(t, err); code != 1 || !strings.Contains(said, "REDIS_URL") {
		t.Errorf("status without Redis: exit code %d with %s; expected 1 and REDIS_URL", code, said)
	}
	if after := states(); after != before || !strings.Contains(before, " exited") {
		t.Errorf("before\n%s\nand after a command\n%s", before, after)
	}
}

// shell runs a script in a container of its own, given docker run's flags.
func (e *engine) shell(t *testing.T, image, script string, flags ...string) string {
	t.Helper()
	return e.docker(t, slices.Concat([]string{"run", "--rm", "--entrypoint", "sh"}, flags, []string{image, "-c", script})...)
}
