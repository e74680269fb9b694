//go:build e2e

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"notifier/test/kit"
)

// lastRelease is the commit of v0.2.0, which kept passwords in volumes.
const lastRelease = "bdf0f48"

// testUpgrade follows "From v0.2.0" of docs/operating.md: down with the old files, init.sh on the old .env, up
// with the new files. Events, limits and dead letters are still there.
func testUpgrade(t *testing.T, e *engine) {
	directory := t.TempDir()
	archive := exec.Command("sh", "-c", "git archive "+lastRelease+" docker-compose.yml deploy .env.example | tar -x -C "+directory)
	archive.Dir = "../.."
	if out, err := archive.CombinedOutput(); err != nil {
		t.Skipf("v0.2.0 is not in the history of this clone: %v: %s", err, out)
	}
	env := filepath.Join(directory, ".env")
	settings := append(slices.Clone(fakeSlack), "LIMIT_CATEGORY=2/1h")
	kit.Check(t, os.WriteFile(env, []byte(strings.Join(settings, "\n")), 0o600))

	p := e.project(t, "upgrade", []string{slackFile}) // the new files, which need the passwords of init.sh
	old := e.project(t, "upgrade", nil)
	old.environment = append(old.environment, "NOTIFIER_ENV_FILE="+env, "NATS_PORT=0", "NOTIFIER_IMAGE="+e.release(t))
	old.command = []string{"docker", "compose", "--env-file", env, "-p", old.name, "-f", filepath.Join(directory, "docker-compose.yml"), "-f", slackFile}
	t.Cleanup(func() { old.down(t) })
	old.up(t, "--wait", "notifier", "fake-slack") // v0.2.0 has a profile for the second
	publish := func(p *project, service, category, payload string) string {
		return p.compose(t, strings.Fields("run --rm -T "+service+" "+category+" "+payload)...)
	}
	publish(old, "publish", "errors", "e2e-old-1")
	publish(old, "publish", "errors", "e2e-old-2")
	publish(old, "publish", "nowhere", `{"text":"hello","channel":"#ceo"}`)
	old.untilSettled(t, "notifier", 3)
	old.compose(t, "stop", "notifier")
	publish(old, "publish", "deploys", "e2e-unread")
	old.asRealImages(t)
	old.compose(t, "down")

	kit.Check(t, os.CopyFS(filepath.Join(directory, "new"), os.DirFS("../../deploy")))
	_, err := e.run(e.ctx, commandDeadline, "sh", "-euc", `mkdir -p "$0/clone/observability" && cp -r "$0/new" "$0/clone/deploy" && cp "$0/.env" "$0/clone/" && sh "$0/clone/deploy/init.sh"`, directory)
	kit.Check(t, err)
	p.use(t, filepath.Join(directory, "clone/.env"))
	p.up(t, "--wait")
	p.untilSettled(t, "notifier", 1)
	if posts := p.slack(t).posts(t); len(posts) != 1 || posts["e2e-unread"] != 1 {
		t.Errorf("after the upgrade Slack has %v, expected the event that nobody had read", posts)
	}
	for command, want := range map[string]string{"status": "2/2", "dead list": "unroutable"} {
		out := p.compose(t, append([]string{"run", "--rm", "-T", "cli"}, strings.Fields(command)...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%s after the upgrade: no %q in %s", command, want, out)
		}
	}
	_, err = p.try(commandDeadline, "run", "--rm", "-T", "cli", "publish", "-wait", "errors", "again")
	if code, said := exitOf(t, err); code != 3 || !strings.Contains(said, "2/1h") {
		t.Errorf("the limit of before: exit code %d with %s", code, said)
	}
}

// release builds v0.2.0 and returns its image.
func (e *engine) release(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	build := exec.Command("../../.ci/release-before", directory)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	image := e.production + "-before"
	text := "FROM " + e.production + "\nCOPY notifier /notifier\n"
	kit.Check(t, os.WriteFile(filepath.Join(directory, "Dockerfile"), []byte(text), 0o600))
	kit.Check(t, os.WriteFile(filepath.Join(directory, ".dockerignore"), []byte("source\n"), 0o600))
	e.docker(t, "build", "-q", "-t", image, directory)
	t.Cleanup(func() { e.docker(t, "image", "rm", "-f", image) })
	return image
}

// asRealImages gives Redis's files to the user that redis:8-alpine runs as. A stand-in for that image, for
// machines without a registry, may have run as root.
func (p *project) asRealImages(t *testing.T) {
	t.Helper()
	p.compose(t, "stop", "redis")
	p.shell(t, p.config(t)["redis"].Image, "chown -R 999:1000 /data", "-v", p.name+"_redis:/data")
}

// use replaces the .env of the project.
func (p *project) use(t *testing.T, file string) {
	t.Helper()
	p.readPasswords(t, file)
	p.command[slices.Index(p.command, "--env-file")+1] = file
	p.environment = append(p.environment, "NOTIFIER_ENV_FILE="+file)
}

// readPasswords reads those that init.sh has made.
func (p *project) readPasswords(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.Check(t, err)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, isPassword := p.passwords[name]; isPassword {
			p.passwords[name] = value
		}
	}
}
