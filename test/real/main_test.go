package real

import (
	"crypto/rand"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

var (
	folder  string
	program kit.Program
	write   = flag.Bool("write", false, "if all tests pass, write the table in docs/compatibility.md")
)

func TestMain(m *testing.M) {
	kit.QuietRedis()
	kit.Overlap(4)
	code := kit.InFolder(m, &folder)
	if os.Getenv(requirement) == "require" {
		fmt.Print(table())
	}
	if *write && code == 0 {
		if err := writeTable(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// run runs a command of notifier with these variables and no others, and expects success. It returns both
// outputs.
func run(t *testing.T, env map[string]string, arguments ...string) string {
	t.Helper()
	out, err := try(t, env, arguments...)
	if err != nil {
		t.Errorf("notifier %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return out
}

// try is run without an expectation.
func try(t *testing.T, env map[string]string, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program.Build(t, folder), arguments...)
	for name, value := range env {
		command.Env = append(command.Env, name+"="+value)
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// startWorker starts a worker and waits until it can send.
func startWorker(t *testing.T, env map[string]string) *kit.Worker {
	t.Helper()
	worker, err := kit.StartWorker(t, program.Build(t, folder), filepath.Join(t.TempDir(), "log"), env)
	kit.Check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(worker.Log)
			t.Logf("the worker's log: %s%s", log[max(0, len(log)-4000):], worker.Complaints())
		}
	})
	kit.EventuallyNil(t, worker.Ready)
	return worker
}

// expectSent publishes an event and expects it to be sent, as ambiguous or not.
func expectSent(t *testing.T, env map[string]string, category string, ambiguous bool) {
	t.Helper()
	out := run(t, env, "publish", "-wait", "-json", category, "disk full")
	if !strings.Contains(out, `"outcome":"sent"`) || strings.Contains(out, `"ambiguous":true`) != ambiguous {
		t.Errorf("%s: %s, expected that it was sent, ambiguous: %t", category, out, ambiguous)
	}
}

// services starts a fake Slack with HTTPS, an embedded NATS server and a Redis, and returns the settings of a
// worker that uses them, with limits and a pace that never matter.
func services(t *testing.T) (*devstack.Slack, map[string]string) {
	t.Helper()
	secure, trust := kit.SlackTLS(t)
	slack, err := devstack.StartSlackTLS("127.0.0.1:0", secure)
	kit.Check(t, err)
	t.Cleanup(func() { _ = slack.Close() })
	server, err := devstack.StartNATS("127.0.0.1:0", t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	env := map[string]string{
		"NATS_URL": server.URL(), "REDIS_URL": redistest.Start(t).Healed(t, "notifier").URL(), "ADMIN_ADDR": "127.0.0.1:0",
		"SLACK_BOT_TOKEN": "xoxb-real", "SLACK_CHANNEL": "C0REAL", "SLACK_API_URL": slack.APIURL(), "SLACK_PACE": "off",
		"LIMIT_GLOBAL": "10000/1m", "LIMIT_CATEGORY": "10000/1m",
	}
	maps.Copy(env, trust)
	return slack, env
}

// events publishes events and accounts for them. The id of an event is also its text.
type events struct {
	js  jetstream.JetStream
	ids []string
}

// publish publishes n events, and waits until the stream has each.
func (e *events) publish(t *testing.T, category string, n int) {
	t.Helper()
	for range n {
		id := rand.Text()
		_, err := e.js.Publish(t.Context(), "notify."+category, fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, id))
		kit.Check(t, err)
		e.ids = append(e.ids, id)
	}
}

// account waits until the worker has logged an outcome of each event, and expects that each was sent once:
// one line says so, and Slack has one message. Slack may have more of an event that the line calls
// ambiguous, and the log a second line that calls the event a duplicate, if NATS did not get the
// acknowledgement. account returns the number of ambiguous events.
func (e *events) account(t *testing.T, worker *kit.Worker, slack *devstack.Slack) (ambiguous int) {
	t.Helper()
	outcomes := map[string][]kit.LogLine{}
	kit.EventuallyNil(t, func() error {
		lines, err := worker.Lines()
		clear(outcomes)
		for _, line := range lines {
			if line.IsOutcome() {
				outcomes[line.EventID] = append(outcomes[line.EventID], line)
			}
		}
		for _, id := range e.ids {
			if err == nil && len(outcomes[id]) == 0 {
				err = fmt.Errorf("%s has no outcome, and %d of %d events have", id, len(outcomes), len(e.ids))
			}
		}
		return err
	})
	messages := map[string]int{}
	for _, message := range slack.Messages() {
		messages[message.Text]++
	}
	for _, id := range e.ids {
		lines := slices.DeleteFunc(outcomes[id], func(l kit.LogLine) bool { return l.Reason == "duplicate" })
		if len(lines) != 1 || lines[0].Outcome != "sent" {
			t.Errorf("%s: outcomes %+v, expected that it was sent", id, lines)
			continue
		}
		if lines[0].Ambiguous {
			ambiguous++
		}
		if messages[id] == 0 || messages[id] > 1 && !lines[0].Ambiguous {
			t.Errorf("%s: Slack has %d messages, and the line says ambiguous: %t", id, messages[id], lines[0].Ambiguous)
		}
	}
	return ambiguous
}

// repository returns a file of the repository.
func repository(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	kit.Check(t, err)
	return string(text)
}

// block returns the first fenced block of a kind, such as "sh", in a document.
func block(t *testing.T, document, kind string) string {
	t.Helper()
	_, rest, found := strings.Cut(repository(t, document), "\n```"+kind+"\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("%s has no block %q", document, kind)
	}
	return text
}

// portOf returns the port of an address.
func portOf(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}
