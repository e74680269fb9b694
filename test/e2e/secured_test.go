//go:build e2e

package e2e_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// redisImage is the image of Redis, which has a shell and redis-cli.
func (p *project) redisImage(t *testing.T) string {
	t.Helper()
	var config struct {
		Services map[string]struct{ Image string }
	}
	kit.Check(t, json.Unmarshal([]byte(p.compose(t, "config", "--format", "json")), &config))
	return config.Services["redis"].Image
}

// shell runs a script in a container of its own, given docker run's flags.
func (p *project) shell(t *testing.T, image, script string, flags ...string) string {
	t.Helper()
	return p.docker(t, slices.Concat([]string{"run", "--rm", "--entrypoint", "sh"}, flags, []string{image, "-c", script})...)
}

// passwords are all that were made, by their names.
func (p *project) passwords(t *testing.T) map[string]string {
	t.Helper()
	image := p.redisImage(t)
	passwords := map[string]string{}
	for line := range strings.Lines(p.shell(t, image, `cd /own; for name in *-*; do echo "$name $(cat "$name")"; done`, "-v", p.name+"_secrets:/own:ro")) {
		name, password, _ := strings.Cut(strings.TrimSpace(line), " ")
		passwords[name] = password
	}
	return passwords
}

// checkSecrets: the passwords are different, nobody but their readers can read their files, and neither
// compose nor the engine shows one.
func (p *project) checkSecrets(t *testing.T) map[string]string {
	t.Helper()
	passwords := p.passwords(t)
	seen := map[string]bool{}
	for name, password := range passwords {
		if seen[password] || !regexp.MustCompile(`^[0-9a-f]{48}$`).MatchString(password) {
			t.Errorf("the password %s is %q, expected 48 hexadecimal digits of its own", name, password)
		}
		seen[password] = true
	}
	if len(passwords) != 5 {
		t.Errorf("passwords for %d, expected 5", len(passwords))
	}
	shown := p.compose(t, "config") + p.compose(t, "logs") + p.docker(t, append([]string{"inspect"}, strings.Fields(p.compose(t, "ps", "-a", "-q"))...)...)
	for name, password := range passwords {
		if strings.Contains(shown, password) {
			t.Errorf("the password %s is shown by docker inspect, or by compose's config or logs", name)
		}
	}

	owners := map[string]string{"nats": "0:0", "redis": "999:1000", "worker": "65532:65532", "publisher": "65532:65532", "operator": "65532:65532"}
	var volumes []string
	for reader := range owners {
		volumes = append(volumes, "-v", p.name+"_secrets-"+reader+":/secrets/"+reader+":ro")
	}
	image := p.redisImage(t)
	files := strings.Fields(p.shell(t, image, `cd /secrets; stat -c %n=%a=%u:%g */*`, volumes...))
	for _, file := range files {
		reader, _, _ := strings.Cut(file, "/")
		if !strings.HasSuffix(file, "=400="+owners[reader]) {
			t.Errorf("%s, expected it to be readable for %s alone", file, owners[reader])
		}
	}
	if len(files) != 7 {
		t.Errorf("files %v, expected 7", files)
	}
	return passwords
}

// checkStrangers: NATS and Redis accept nobody without a password, from this machine or from their own
// network.
func (p *project) checkStrangers(t *testing.T) {
	t.Helper()
	connection, err := nats.Connect("nats://" + p.address(t, "nats", "4222"))
	if err == nil {
		connection.Close()
		t.Error("NATS accepts somebody without a password")
	} else if !strings.Contains(err.Error(), "Authorization") {
		t.Errorf("without a password NATS answers %v, expected an authorization violation", err)
	}
	image := p.redisImage(t)
	for _, command := range []string{"ping", "keys '*'", "--user notifier ping", "--user health -a wrong ping"} {
		out := p.shell(t, image, "redis-cli -h redis "+command+" 2>&1", "--network", p.name+"_backend")
		if !strings.Contains(out, "NOAUTH") {
			t.Errorf("redis-cli %s without a password: %s; expected NOAUTH", command, out)
		}
	}
}

// checkCommands: check finds nothing to warn of in NATS and Redis, and publish says what became of an event.
func (p *project) checkCommands(t *testing.T) {
	t.Helper()
	_, err := p.try(commandDeadline, "run", "--rm", "-T", "cli", "check", "-strict")
	code, output := exitOf(t, err) // for the fake Slack alone, which has no TLS
	if code != 1 || !strings.Contains(output, "SLACK_API_URL is http") || !strings.Contains(output, "ADMIN_ADDR 0.0.0.0:8080") ||
		!strings.Contains(output, "No failures, 2 warnings.") {
		t.Errorf("check -strict: exit code %d with %s; expected warnings about SLACK_API_URL and ADMIN_ADDR", code, output)
	}
	if out := p.compose(t, "run", "--rm", "-T", "publish", "typed", "-n", "2", "by hand"); !strings.Contains(out, "2 published to notify.typed") {
		t.Errorf("publish: %s", out)
	}
	_, err = p.try(commandDeadline, "run", "--rm", "-T", "publish", "typed", "-wait", "by hand")
	if code, output := exitOf(t, err); code != 3 || !strings.Contains(output, "dropped") { // no slot is free
		t.Errorf("publish -wait: exit code %d with %s; expected 3 and that it was dropped", code, output)
	}
	if out := p.compose(t, "run", "--rm", "-T", "cli", "status"); !strings.Contains(out, "100/100") {
		t.Errorf("status: %s", out)
	}
}

// testChangedNames: NATS and Redis that run already are started again, with new permissions, when .env sets
// another name, and are left alone otherwise.
func testChangedNames(t *testing.T, e *engine) {
	p := e.project(t, "changed", nil)
	start := func(p *project) string {
		p.up(t, "--wait", "nats", "redis")
		return strings.Join(append(p.replicas(t, "nats"), p.replicas(t, "redis")...), " ")
	}
	first := start(p)
	if again := start(p); again != first {
		t.Errorf("the same settings: the containers are %s, expected those from before, %s", again, first)
	}
	p = e.project(t, "changed", nil, "NATS_SUBJECT=alerts.>", "REDIS_NAMESPACE=acme")
	start(p)
	image := p.redisImage(t)
	allowed := p.shell(t, image, "redis-cli -u $(cat /secrets/worker/redis-url) set '{acme}:key' 1 2>&1",
		"--network", p.name+"_backend", "-v", p.name+"_secrets-worker:/secrets/worker:ro")
	if !strings.HasSuffix(allowed, "OK") { // behind a warning about passwords in arguments
		t.Errorf("with another REDIS_NAMESPACE Redis answers %q to a key of it, expected OK", allowed)
	}
	worker, end := p.jetstream(t, "nats", "notifier", "_NOTIFIER.NOTIFY.worker")
	defer end()
	_, err := worker.CreateStream(p.ctx, jetstream.StreamConfig{Name: "NOTIFY", Subjects: []string{"alerts.>"}})
	kit.Check(t, err)
	publisher, end := p.jetstream(t, "nats", "publisher", "_INBOX_publisher")
	defer end()
	if _, err := publisher.Publish(p.ctx, "alerts.errors", nil); err != nil {
		t.Errorf("with another NATS_SUBJECT an event is not published: %v", err)
	}
}

// testPrivateClone: a clone that only its owner may read, as under umask 077, starts.
func testPrivateClone(t *testing.T, e *engine) {
	directory := t.TempDir()
	kit.Check(t, os.CopyFS(filepath.Join(directory, "deploy"), os.DirFS("../../deploy")))
	compose, err := os.ReadFile("../../docker-compose.yml")
	kit.Check(t, err)
	kit.Check(t, os.WriteFile(filepath.Join(directory, "docker-compose.yml"), compose, 0o600))
	kit.Check(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		err = errors.Join(err, os.Chmod(path, mode))
		if os.Geteuid() == 0 { // root of the container is root here, and its own files would prove nothing
			err = errors.Join(err, os.Chown(path, 1000, 1000))
		}
		return err
	}))
	p := e.project(t, "private", nil, "COMPOSE_FILE="+filepath.Join(directory, "docker-compose.yml"))
	t.Cleanup(func() { p.down(t) })
	p.compose(t, "run", "--rm", "-T", "secrets")
}

// testOpenRedis: the health check fails for a Redis that lets everybody in, where its own login fails.
func testOpenRedis(t *testing.T, e *engine) {
	p := e.project(t, "open", nil)
	var config struct {
		Services map[string]struct{ Healthcheck struct{ Test []string } }
	}
	kit.Check(t, json.Unmarshal([]byte(p.compose(t, "config", "--format", "json")), &config))
	// config writes $ as it is in the file
	check := strings.ReplaceAll(config.Services["redis"].Healthcheck.Test[1], "$$", "$")
	image := p.redisImage(t)
	out := p.shell(t, image, "mkdir -p /secrets/redis; echo password >/secrets/redis/health; redis-server >/dev/null & "+
		"until redis-cli ping | grep PONG; do sleep 0.1; done; if "+check+"; then echo healthy; else echo refused; fi")
	if !strings.HasSuffix(out, "refused") {
		t.Errorf("the health check %s of an open Redis: %s, expected it to fail", check, out)
	}
}
