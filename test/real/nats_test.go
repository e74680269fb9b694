package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// natsConf has notifier in an account of its own, with the users of deploy/nats.conf and one who may do
// everything, and demands a client's certificate. Streams must have a size.
const natsConf = `listen: {{listen}}
jetstream {store_dir: "{{folder}}/data"}
tls {cert_file: "{{certificate}}", key_file: "{{key}}", ca_file: "{{authority}}", verify: true}
system_account: SYS
accounts {
  SYS {users: [{user: sys, password: psys}]}
  OTHERS {jetstream: enabled, users: [{user: other, password: pother}]}
  NOTIFIER {
    jetstream: {max_file: 2G, max_bytes_required: true}
    users = [
      {user: admin, password: padmin}
{{users}}
    ]
  }
}
`

// natsWorld is a nats-server that several teams share, and the services beside it.
type natsWorld struct {
	server    *process
	addr      string
	slack     *devstack.Slack
	env       map[string]string // of a worker
	authority *kit.Authority
	own, key  string // the client's certificate
}

func startNATS(t *testing.T, path string) *natsWorld {
	t.Helper()
	w := &natsWorld{addr: kit.FreeAddr(t), authority: kit.NewAuthority(t, "ours")}
	w.slack, w.env = services(t)
	files := t.TempDir()
	certificate, key := w.authority.Issue(t, "127.0.0.1")
	w.own, w.key = w.authority.Issue(t, "worker")
	_, users, _ := strings.Cut(repository(t, "deploy/nats.conf"), "users = [\n")
	users, _, found := strings.Cut(users, "\n  ]\n")
	if !found {
		t.Fatal("deploy/nats.conf has no users")
	}
	conf := strings.NewReplacer("{{listen}}", w.addr, "{{folder}}", files, "{{certificate}}", certificate, "{{key}}", key,
		"{{authority}}", w.authority.File, "{{users}}", users).Replace(natsConf)
	file := filepath.Join(files, "nats.conf")
	kit.Check(t, os.WriteFile(file, []byte(conf), 0o600))
	w.server = start(t, path, []string{
		"NATS_WORKER_PASSWORD=pnotifier", "NATS_PUBLISHER_PASSWORD=ppublisher", "NATS_OPERATOR_PASSWORD=poperator",
	}, "-c", file)
	kit.Eventually(t, "nats-server listens", func() bool { return listens(w.addr) })
	w.env["NATS_URL"] = w.url("notifier")
	w.env["NATS_TLS_CA"], w.env["NATS_TLS_CERT"], w.env["NATS_TLS_KEY"] = w.authority.File, w.own, w.key
	w.env["NATS_STREAM_MAX_BYTES"] = "268435456"
	return w
}

// url returns the URL for a user. The password is "p" and the name.
func (w *natsWorld) url(user string) string { return "tls://" + user + ":p" + user + "@" + w.addr }

// as returns the environment of a command that another user runs.
func (w *natsWorld) as(user string) map[string]string {
	env := map[string]string{}
	for name, value := range w.env {
		env[name] = value
	}
	env["NATS_URL"] = w.url(user)
	return env
}

// publisher returns events that a publisher with Go's client publishes.
func (w *natsWorld) publisher(t *testing.T) *events {
	t.Helper()
	connection, err := nats.Connect(w.url("publisher"), nats.RootCAs(w.authority.File), nats.ClientCert(w.own, w.key),
		nats.CustomInboxPrefix("_INBOX_publisher"), nats.MaxReconnects(-1), nats.ReconnectWait(50e6))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	kit.Check(t, err)
	return &events{js: js}
}

// TestNATSServer: a worker, a publisher and an operator have the permissions they need, in an account with
// TLS and bounded streams, and the worker recovers from a crash of the server.
func TestNATSServer(t *testing.T) {
	t.Parallel()
	w := startNATS(t, natsServerRow.need(t))
	without := w.as("notifier")
	delete(without, "NATS_TLS_CERT")
	delete(without, "NATS_TLS_KEY")
	if out, err := try(t, without, "check"); err == nil {
		t.Errorf("check without a certificate succeeds:\n%s", out)
	}
	worker := startWorker(t, w.env)
	for _, line := range strings.Split(run(t, w.env, "check"), "\n") {
		name, _, _ := strings.Cut(line, " ")
		if (name == "nats" || strings.HasPrefix(name, "stream/") || strings.HasPrefix(name, "consumer/")) && !strings.Contains(line, " ok ") {
			t.Errorf("check: %s, expected ok", line)
		}
	}
	all := w.publisher(t)
	all.publish(t, "before", 10)
	all.account(t, worker, w.slack)
	w.server.kill(t)
	kit.Eventually(t, "the worker is not ready without NATS", func() bool { return worker.Ready() != nil })
	w.server.again(t)
	kit.EventuallyNil(t, worker.Ready)
	all.publish(t, "after", 10)
	all.account(t, worker, w.slack)

	operator := w.as("operator")
	expectSent(t, operator, "operated", false)
	if out := run(t, operator, "events", "-category", "before"); strings.Count(out, "sent") < 10 {
		t.Errorf("an operator's events:\n%s", out)
	}
	if out := run(t, operator, "why", all.ids[0]); !strings.Contains(out, "sent") {
		t.Errorf("an operator's why:\n%s", out)
	}
	_, err := all.js.Publish(t.Context(), "notify.broken", []byte(`{"text": 1}`))
	kit.Check(t, err)
	kit.EventuallyNil(t, func() error {
		if out := run(t, operator, "dead", "list"); !strings.Contains(out, "malformed") {
			return fmt.Errorf("an operator's dead letters:\n%s", out)
		}
		return nil
	})
	if out := run(t, operator, "dead", "show", "1"); !strings.Contains(out, `{"text": 1}`) {
		t.Errorf("an operator sees as the payload of the dead letter:\n%s", out)
	}
	run(t, operator, "dead", "delete", "1")
	if out, err := try(t, w.as("other"), "publish", "-wait", "stray", "of another account"); err == nil {
		t.Errorf("another account reaches the worker: %s", out)
	}
}

// TestNATSProgram: the worker sends events that the nats program publishes. While the consumer is paused,
// events wait. Purged events are not sent.
func TestNATSProgram(t *testing.T) {
	t.Parallel()
	path := natsRow.need(t)
	w := startNATS(t, natsServerRow.need(t))
	worker := startWorker(t, w.env)
	home := t.TempDir()
	shell := func(user, script string) string {
		t.Helper()
		command := exec.Command("sh", "-ec", script)
		command.Env = []string{
			"PATH=" + filepath.Dir(path) + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home,
			"NATS_URL=" + w.url(user), "NATS_CA=" + w.authority.File, "NATS_CERT=" + w.own, "NATS_KEY=" + w.key,
		}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}

	// The line of the documents, twice: the second is a duplicate.
	line := block(t, "docs/publishing.md", "sh")
	shell("publisher", line)
	if out := shell("publisher", line); !strings.Contains(strings.ToLower(out), "duplicate") {
		t.Errorf("nats pub says of a second copy: %s, expected that it is a duplicate", out)
	}
	kit.Eventually(t, "the event is sent", func() bool { return w.sent("v1.2.3 is out") == 1 })

	all := w.publisher(t)
	shell("admin", "nats consumer pause NOTIFY notifier 1h --force")
	all.publish(t, "paused", 5)
	kit.Eventually(t, "the events wait unread", func() bool { return strings.Contains(run(t, w.env, "check"), "5 unread") })
	kit.EventuallyNil(t, func() error { // a worker looks three times a minute
		if out := run(t, w.env, "status"); !strings.HasPrefix(out, "Not sending: consumer notifier is paused until ") {
			return fmt.Errorf("status of a paused consumer:\n%s", out)
		}
		return nil
	})
	run(t, w.env, "status", "paused")
	if out, err := try(t, w.as("operator"), "why", all.ids[0]); err == nil || !strings.Contains(out, "5 events unread") ||
		!strings.Contains(out, "is paused until ") {
		t.Errorf("why of an event that no worker has read: %v, expected 5 unread events and the pause\n%s", err, out)
	}
	if n := w.slack.Accepted(); n != 1 {
		t.Errorf("Slack has %d messages while the consumer is paused, expected 1", n)
	}
	shell("admin", "nats consumer resume NOTIFY notifier --force")
	all.account(t, worker, w.slack)

	shell("admin", "nats consumer pause NOTIFY notifier 1h --force")
	purged := w.publisher(t)
	purged.publish(t, "purged", 5)
	shell("admin", "nats stream purge NOTIFY --force")
	shell("admin", "nats consumer resume NOTIFY notifier --force")
	all.publish(t, "after", 5)
	all.account(t, worker, w.slack)
	for _, id := range purged.ids {
		if w.sent(id) > 0 {
			t.Errorf("%s is sent, and was purged before it was read", id)
		}
	}
	kit.EventuallyNil(t, func() error {
		if out := run(t, w.env, "status"); !strings.HasPrefix(out, "Sending.") {
			return fmt.Errorf("status after all that:\n%s", out)
		}
		return nil
	})
}

// sent counts the messages with a text.
func (w *natsWorld) sent(text string) (n int) {
	for _, message := range w.slack.Messages() {
		if message.Text == text {
			n++
		}
	}
	return n
}
