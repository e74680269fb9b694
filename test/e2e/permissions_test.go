//go:build e2e

package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// checkStrangers: NATS and Redis admit no client without a password, from this machine or from their own
// network, and a publisher cannot read.
func (p *project) checkStrangers(t *testing.T) {
	t.Helper()
	address := "nats://" + p.address(t, "nats", "4222")
	if connection, err := nats.Connect(address); !errors.Is(err, nats.ErrAuthorization) {
		connection.Close()
		t.Errorf("without a password NATS replies %v, expected an authorization violation", err)
	}
	refused := make(chan error, 1)
	publisher, err := nats.Connect(address, nats.UserInfo("publisher", p.passwords[users["publisher"]]),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	kit.Check(t, err)
	defer publisher.Close()
	_, err = publisher.SubscribeSync("notify.>")
	kit.Check(t, err)
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("a publisher subscribes to events: %v", err)
		}
	case <-time.After(kit.Patience):
		t.Error("a publisher may subscribe to events")
	}
	image := p.config(t)["redis"].Image
	for _, command := range []string{"ping", "keys '*'", "--user notifier ping", "--user health -a wrong ping"} {
		out := p.shell(t, image, "redis-cli -h redis "+command+" 2>&1", "--network", p.name+"_backend")
		if !strings.Contains(out, "NOAUTH") {
			t.Errorf("redis-cli %s without a password: %s; expected NOAUTH", command, out)
		}
	}
}

// checkPasswords: neither the logs nor the arguments of a process, which every user of the machine can see,
// have a password.
func (p *project) checkPasswords(t *testing.T) {
	t.Helper()
	shown := p.compose(t, "logs") + p.compose(t, "top")
	for name, password := range p.passwords {
		if strings.Contains(shown, password) {
			t.Errorf("%s is in a log, or in the arguments of a process", name)
		}
	}
}

// checkCommands: an operator publishes and reads outcomes, and check warns only of an admin server without a
// token.
func (p *project) checkCommands(t *testing.T) {
	t.Helper()
	_, err := p.try(commandDeadline, "run", "--rm", "-T", "notifier", "check", "-strict")
	code, output := exitOf(t, err)
	if code != 1 || !strings.Contains(output, "ADMIN_ADDR 0.0.0.0:8080") || !strings.Contains(output, "No failures, 1 warning.") {
		t.Errorf("check -strict: exit code %d with %s; expected a warning about ADMIN_ADDR", code, output)
	}
	cli := []string{"run", "--rm", "-T", "cli"}
	for _, test := range []struct{ command, want string }{
		{"publish typed -n 2 hello", "2 published to notify.typed"},
		{"status", "100/100"},
		{"events -outcome dropped", "global"},
		{"dead list", "0 dead letters"},
	} {
		if out := p.compose(t, append(cli, strings.Fields(test.command)...)...); !strings.Contains(out, test.want) {
			t.Errorf("%s: no %q in %s", test.command, test.want, out)
		}
	}
	_, err = p.try(commandDeadline, append(cli, "publish", "-wait", "typed", "by hand")...)
	if code, output := exitOf(t, err); code != 3 || !strings.Contains(output, "dropped") { // no slot is free
		t.Errorf("publish -wait: exit code %d with %s; expected 3 and that it was dropped", code, output)
	}
}

// testTeam follows "A second team" of docs/operating.md: the second team's worker runs beside the first
// one's, and its user reaches nothing of the first team.
func testTeam(t *testing.T, e *engine) {
	directory := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(directory, name)
		kit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		kit.Check(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	conf := repository(t, "deploy/nats.conf")
	_, users, _ := strings.Cut(conf, "users = [\n")
	users, _, _ = strings.Cut(users, "\n  ]\n")
	team := strings.NewReplacer("user: notifier", "user: payments", "user: publisher", "user: payments-publisher", "user: operator", "user: payments-operator",
		"NOTIFY", "PAYMENTS", "notify", "payments", "_INBOX_publisher", "_INBOX_payments",
		"$NATS_WORKER_PASSWORD", "pteam", "$NATS_PUBLISHER_PASSWORD", "pteam", "$NATS_OPERATOR_PASSWORD", "pteam").Replace(users)
	file("deploy/nats.conf", strings.Replace(conf, "users = [\n", "users = [\n"+team+"\n", 1))
	core := repository(t, "docker-compose.yml")
	_, redis, _ := strings.Cut(core, "      --user notifier on")
	redis, _, _ = strings.Cut(redis, "\n    environment:")
	core = strings.Replace(core, "      --user notifier on"+redis, "      --user notifier on"+redis+"\n      --user payments on"+
		strings.NewReplacer("${REDIS_PASSWORD}", "pteam", "{notifier}", "{payments}").Replace(redis), 1)
	file("docker-compose.yml", core)
	file("payments.env", strings.Join(append(slices.Clone(fakeSlack), "NATS_STREAM=PAYMENTS", "NATS_SUBJECT=payments.>", "REDIS_NAMESPACE=payments",
		"NATS_URL=nats://payments:pteam@nats:4222", "REDIS_URL=redis://payments:pteam@redis:6379/0"), "\n"))
	file("docker-compose.override.yml", strings.ReplaceAll(fencedBlock(t, "docs/operating.md", "A second team", "yaml"), "8101-8109", "0"))
	file("fake-slack.yml", repository(t, slackFile)+"  payments: {volumes: *certificate}\n")

	p := e.project(t, "team", nil, append(slices.Clone(fakeSlack), "NOTIFIER_REPLICAS=1")...)
	flags := p.command[:slices.Index(p.command, "-f")]
	p.command = append(slices.Clone(flags), "-f", filepath.Join(directory, "docker-compose.yml"), "-f", filepath.Join(directory, "docker-compose.override.yml"),
		"-f", filepath.Join(directory, "fake-slack.yml"))
	p.up(t, "--wait")
	js, end := connect(t, p.address(t, "nats", "4222"), "payments-publisher", "pteam", "_INBOX_payments")
	defer end()
	_, err := js.Publish(p.ctx, "payments.refunds", []byte("e2e-refund"))
	kit.Check(t, err)
	p.untilSettled(t, "payments", 1)
	if posts := p.slack(t).posts(t); posts["e2e-refund"] != 1 {
		t.Errorf("posts %v, expected the team's event", posts)
	}
	if out := p.compose(t, "exec", "-T", "payments", "/notifier", "status"); !strings.Contains(out, "category/refunds") {
		t.Errorf("the team's status: %s", out)
	}
	if out := p.compose(t, "run", "--rm", "-T", "cli", "status"); strings.Contains(out, "refunds") || strings.Contains(out, "differ") {
		t.Errorf("the first team's status: %s", out)
	}
	for _, foreign := range [][]string{
		{"-e", "REDIS_NAMESPACE=notifier", "payments", "/notifier", "status"},
		{"-e", "NATS_STREAM=NOTIFY", "payments", "/notifier", "events"},
	} {
		if out, err := p.try(commandDeadline, append([]string{"exec", "-T"}, foreign...)...); err == nil {
			t.Errorf("the second team may %v: %s", foreign, out)
		}
	}
}

// repository returns a file of the repository.
func repository(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	kit.Check(t, err)
	return string(text)
}
