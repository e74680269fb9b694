package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// secret is the password of users on test servers. Its spelling is unique, so tests can search output for it.
const secret = "hunter2marker"

// canaries maps a setting to its secret. Each secret is unique, so a leaked one identifies its setting.
type canaries map[string]string

func newCanaries(names ...string) canaries {
	c := canaries{}
	for i, name := range names {
		c[name] = fmt.Sprintf("canary%dq%dz", i, 7919*(i+1))
	}
	return c
}

// expectNone expects none of them in a text.
func (c canaries) expectNone(t *testing.T, where, text string) {
	t.Helper()
	for name, canary := range c {
		if strings.Contains(text, canary) {
			t.Errorf("%s shows the secret of %s:\n%s", where, name, text)
		}
	}
}

// canaryServices starts the services and puts a canary in every secret setting. Some secrets are in
// variables, others in files readable by all users.
func canaryServices(t *testing.T) (canaries, map[string]string, *devstack.Slack) {
	t.Helper()
	c := newCanaries("NATS password", "Redis password", "Slack token", "Slack URL's user", "Slack URL's path", "OTLP user", "OTLP header", "OTLP path", "OTEL variable", "payload")
	bus, slack, settings := startServices(t)
	server := redistest.StartProcess(t)
	server.SetUser(t, c["Redis password"], "notifier", redisUser(t)...)
	file := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		kit.Check(t, os.WriteFile(path, []byte(content), 0o600))
		kit.Check(t, os.Chmod(path, 0o644)) //nolint:gosec // it is to be warned about
		return path
	}
	delete(settings, "REDIS_URL")
	maps.Copy(settings, map[string]string{
		// the server requires no password
		"NATS_URL":                    strings.Replace(bus.URL(), "nats://", "nats://me:"+c["NATS password"]+"@", 1),
		"REDIS_URL_FILE":              file("redis", "redis://notifier:"+c["Redis password"]+"@"+server.Addr+"/0"),
		"SLACK_BOT_TOKEN_FILE":        file("token", "xoxb-"+c["Slack token"]),
		"SLACK_API_URL":               strings.Replace(slack.APIURL(), "://", "://"+c["Slack URL's user"]+":"+c["Slack URL's user"]+"@", 1),
		"SLACK_CHANNEL":               "C0123",
		"LOG_LEVEL":                   "debug",
		"LIMIT_CATEGORY":              "2/1h",
		"DIGEST_INTERVAL":             "1m",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:" + c["OTLP user"] + "@127.0.0.1:1/" + c["OTLP path"],
		"OTEL_EXPORTER_OTLP_HEADERS":  "Api-Key=" + c["OTLP header"],
		"OTEL_RESOURCE_ATTRIBUTES":    c["OTEL variable"],
		"OTEL_TRACES_SAMPLER":         "traceidratio",
		"OTEL_TRACES_SAMPLER_ARG":     c["OTEL variable"],
		"OTEL_BSP_SCHEDULE_DELAY":     "100", "OTEL_EXPORTER_OTLP_TIMEOUT": "100",
	})
	return c, settings, slack
}

// TestNoSecretGetsOut runs every command and fetches every page, in both log formats, with working and then
// with broken services. No output may contain a secret or a payload.
func TestNoSecretGetsOut(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			c, settings, slack := canaryServices(t)
			settings["LOG_FORMAT"] = format
			worker := start(t, settings, "serve")
			addr := regexp.MustCompile(`admin server listens.*?"addr": ?"([^"]+)"`)
			kit.Eventually(t, "it listens", func() bool { return addr.MatchString(worker.out.String()) })
			settings["ADMIN_ADDR"] = addr.FindStringSubmatch(worker.out.String())[1]
			admin := "http://" + settings["ADMIN_ADDR"]
			kit.Eventually(t, "ready", func() bool { status, _ := get(t, admin+"/readyz"); return status == 200 })
			c.runAll(t, settings, admin)
			for _, wanted := range []string{"a secret file can be used by others", "spans are lost", "notification dropped", "notification dead"} {
				kit.Eventually(t, wanted, func() bool { return len(worker.out.lines(wanted)) > 0 })
			}
			slack.Respond(devstack.Always(devstack.Response{Code: "invalid_auth"}))
			settings["NATS_URL"] = regexp.MustCompile(`@.*`).ReplaceAllString(settings["NATS_URL"], "@127.0.0.1:1")
			settings["SLACK_API_URL"] = "http://me:" + c["Slack URL's user"] + "@127.0.0.1:1/" + c["Slack URL's path"] + "/"
			c.runAll(t, settings, admin)
			settings["ADMIN_ADDR"] = ephemeralAddr
			broken := start(t, settings, "serve")
			kit.Eventually(t, "it waits for NATS", func() bool { return len(broken.out.lines("127.0.0.1:1")) > 0 })
			for _, worker := range []*process{worker, broken} {
				worker.terminate(t)
				worker.ends(t, exitDone)
				c.expectNone(t, "serve", worker.out.String()+worker.errOut.String())
				if isForbidden(errors.New(worker.out.String())) {
					t.Errorf("the documented user of Redis does not suffice:\n%s", worker.out.String())
				}
			}
		})
	}
}

// runAll expects no secret in the output of any command or in any page.
func (c canaries) runAll(t *testing.T, settings map[string]string, admin string) {
	t.Helper()
	commands := [][]string{
		{"publish", "-id", "e", "errors", c["payload"]}, {"publish", "-n", "3", "errors", c["payload"]},
		{"publish", "errors", `{"text":"` + c["payload"] + `","channel":"C0NOTHERE"}`},
		{"status"}, {"status", "-json"}, {"status", "errors"},
		{"why", "e"}, {"why", "-json", "e"}, {"check"}, {"check", "-all"},
		{"dead", "list"}, {"dead", "list", "-json"}, {"dead", "replay", "-reason", "unroutable"}, {"healthcheck"}, {"version"},
		{"completion", "bash"}, {"-h"}, {"serve", "-h"}, {"serve", "superfluous"},
	}
	for _, arguments := range commands {
		p := start(t, settings, arguments...)
		p.code(t)
		written := p.out.String() + p.errOut.String()
		c.expectNone(t, strings.Join(arguments, " "), written)
		if isForbidden(errors.New(written)) {
			t.Errorf("%s: the documented user of Redis does not suffice: %s", arguments, written)
		}
	}
	for _, page := range []string{"/", "/api/status", "/metrics", "/readyz", "/healthz", "/none"} {
		_, body := get(t, admin+page)
		c.expectNone(t, page, body)
	}
}
