package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/preflight"
	"notifier/internal/settings"
	"notifier/test/kit"
	"notifier/test/natstest"
)

// passwordOf is a password in the document: a variable of the server's environment.
var passwordOf = regexp.MustCompile(`\$[A-Z_]+_PASSWORD`)

// startSecured starts a NATS server with a configuration such as the document's, and with a user more who may
// do everything. as gives the URL for a user.
func startSecured(t *testing.T, configuration string) (as func(user string) string) {
	t.Helper()
	configuration = strings.Replace(configuration, "users = [", "users = [\n{user: all, password: "+secret+"}", 1) + "\n"
	configuration = passwordOf.ReplaceAllString(configuration, secret)
	file := filepath.Join(t.TempDir(), "nats.conf")
	kit.Check(t, os.WriteFile(file, []byte(configuration), 0o600))
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%v in the configuration:\n%s", err, configuration)
	}
	options.Port, options.JetStream = 0, true // any free port
	s := natstest.Server(t, options)
	return func(user string) string {
		return strings.Replace(s.ClientURL(), "nats://", "nats://"+user+":"+secret+"@", 1)
	}
}

// securedWorker are settings for a worker as the document's user.
func securedWorker(t *testing.T, as func(string) string) map[string]string {
	t.Helper()
	_, _, settings := startServices(t)
	maps.Copy(settings, map[string]string{
		"NATS_URL": as("notifier"), "SLACK_BOT_TOKEN": "xoxb-" + secret, "SLACK_CHANNEL": "C0123",
		"LIMIT_CATEGORY": "1/1h", "SHUTDOWN_TIMEOUT": "2s",
	})
	return settings
}

// createStreams creates the same streams as a worker.
func createStreams(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for name, subject := range map[string]string{"NOTIFY": "notify.>", "NOTIFY_DEAD": "notify-dead.>", "NOTIFY_EVENTS": "notify-events.>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.CreateConsumer(t.Context(), "NOTIFY", jetstream.ConsumerConfig{
		Durable: "notifier", FilterSubject: "notify.>", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
}

// publishThree publishes three events: the worker sends the first, drops the second and dead-letters the
// third.
func publishThree(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, payload := range []string{"disk full", "disk full", `{"text":7}`} {
		if _, err := js.Publish(t.Context(), "notify.errors", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
}

// creating are the document's permissions that are needed only until the streams are there.
var creating = regexp.MustCompile(`\n *"\$JS\.API\.(STREAM|CONSUMER)\.CREATE\.[^"*]+"`)

// TestSecurityNATS: the documented users suffice for a publisher, for dead letters and for a worker. The
// worker runs with the permissions to create its streams and its consumer, and again without them.
func TestSecurityNATS(t *testing.T) {
	t.Parallel()
	full := securityBlock(t, "nats")
	reduced := creating.ReplaceAllString(full, "")
	if strings.Count(full, "\n")-strings.Count(reduced, "\n") != 4 {
		t.Fatalf("the document names other permissions to create than expected:\n%s", full)
	}
	second := strings.Replace(reduced, `"$JS.ACK.NOTIFY.notifier.>"`, `"$JS.ACK.*.*.NOTIFY.notifier.>"`, 1) + "\nfeature_flags {js_ack_fc_v2: true}"
	for name, configuration := range map[string]string{"creating": full, "nothing to create": reduced, "the other acknowledgements": second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			as := startSecured(t, configuration)
			settings := securedWorker(t, as)
			js := kit.JetStream(t, as("all"))
			if configuration != full {
				createStreams(t, js)
			}
			w := startReady(t, settings)
			publisher := maps.Clone(settings)
			publisher["NATS_URL"] = as("publisher")
			if p := start(t, publisher, "publish", "errors", "-n", "2", "disk full"); p.code(t) != exitDone {
				t.Errorf("the publisher cannot publish")
			}
			operator := maps.Clone(settings)
			operator["NATS_URL"] = as("operator")
			if p := start(t, operator, "publish", "errors", "disk full"); p.code(t) != exitDone {
				t.Errorf("the operator cannot publish: %s", p.errOut.String())
			}
			if err := publishAs(as("publisher"), `{"text":7}`); err != nil {
				t.Errorf("a publisher that waits for no acknowledgement: %v", err)
			}
			kit.Eventually(t, "all settled and acknowledged", func() bool {
				return len(w.out.lines(`"outcome":`)) == 4 && acknowledged(t, js)
			})
			wantCheck(t, checkAgainst(t, settings, exitDone), "consumer/notifier", preflight.OK, "0 unread")

			list := start(t, operator, "dead", "list")
			if list.code(t); len(list.out.lines("1 dead letter.")) != 1 {
				t.Errorf("dead list: %s%s", list.out.String(), list.errOut.String())
			}
			replay := start(t, operator, "dead", "replay", "-all")
			if code := replay.code(t); code != exitDone || len(replay.out.lines("1 replayed.")) != 1 {
				t.Errorf("dead replay: %d %s%s", code, replay.out.String(), replay.errOut.String())
			}
			waiting := start(t, operator, "publish", "-wait", "deploys", "v1.2.3 is out")
			if code := waiting.code(t); code != exitDone || len(waiting.out.lines("sent")) != 1 {
				t.Errorf("an operator's publish -wait: %d %s%s", code, waiting.out.String(), waiting.errOut.String())
			}
			_, unknown := runToEnd(t, operator, exitFailed, "why", "unknown")
			if !strings.Contains(unknown, "; 0 events unread in stream NOTIFY; ") {
				t.Errorf("an operator's why: %s", unknown)
			}
			w.terminate(t)
			w.ends(t, exitDone)
			if refused := w.out.lines("ermissions"); len(refused) > 0 {
				t.Errorf("the worker was refused something: %s", refused[0])
			}
		})
	}
}

// publishAs publishes an event without asking for an acknowledgement, with the defaults of a client.
func publishAs(url, payload string) error {
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	return errors.Join(connection.Publish("notify.errors", []byte(payload)), connection.Flush(), connection.LastError())
}

// acknowledged reports whether the consumer waits for no acknowledgement.
func acknowledged(t *testing.T, js jetstream.JetStream) bool {
	t.Helper()
	consumer, err := js.Consumer(t.Context(), "NOTIFY", "notifier")
	return err == nil && consumer.CachedInfo().NumAckPending == 0
}

// TestSecurityNATSTrimmed: a worker without one of its permissions names that permission, does not hang, and
// ends on SIGTERM. The test runs one worker per permission, all in parallel.
func TestSecurityNATSTrimmed(t *testing.T) {
	t.Parallel()
	block := securityBlock(t, "nats")
	user := block[:strings.Index(block, "user: publisher")]
	permissions := regexp.MustCompile(`\n *"([^"]+)"`).FindAllStringSubmatch(user, -1)
	if len(permissions) != 13 {
		t.Fatalf("%d permissions of a worker, expected 13", len(permissions))
	}
	inbox := `subscribe: {allow: ["_NOTIFIER.NOTIFY.worker.>"]}`
	if strings.Count(user, inbox) != 1 {
		t.Fatalf("the worker may not subscribe as expected: %s", user)
	}
	without := map[string]string{"_NOTIFIER.NOTIFY.worker.": strings.Replace(block, inbox, `subscribe: {allow: ["_INBOX.other.>"]}`, 1)}
	for _, permission := range permissions {
		// workers need this permission only for lookups on request
		if permission[1] != "$JS.API.DIRECT.GET.NOTIFY_EVENTS" {
			without[strings.TrimSuffix(permission[1], ">")] = strings.Replace(block, permission[0], "", 1)
		}
	}
	for lacking, configuration := range without {
		t.Run(lacking, func(t *testing.T) {
			t.Parallel()
			as := startSecured(t, configuration)
			js := kit.JetStream(t, as("all"))
			if !strings.Contains(lacking, ".CREATE.") {
				createStreams(t, js)
				publishThree(t, js)
			}
			w := start(t, securedWorker(t, as), "serve")
			kit.Eventually(t, "it says what it may not do", func() bool {
				return len(w.out.lines(`"level":"warn"`, "Permissions Violation", lacking)) > 0
			})
			asked := time.Now()
			w.terminate(t)
			if code := w.code(t); code != exitDone {
				t.Errorf("exit code %d", code)
			}
			if took := time.Since(asked); took > 2*settings.NATSTimeout {
				t.Errorf("it took %s to end", took)
			}
		})
	}
}
