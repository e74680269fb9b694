package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/natstest"
)

// startWithStreams starts a NATS server with the streams of a worker, and returns the settings with which
// commands find it.
func startWithStreams(t *testing.T) (jetstream.JetStream, map[string]string) {
	t.Helper()
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	js := kit.JetStream(t, server.URL())
	createStreams(t, js)
	return js, map[string]string{"NATS_URL": server.URL()}
}

// deadLetter is one as a worker writes it.
func deadLetter(category, reason, id string) *nats.Msg {
	letter := nats.NewMsg("notify-dead." + category)
	letter.Header = nats.Header{
		"Notifier-Event-Id": {id}, "Notifier-Reason": {reason}, "Notifier-Subject": {"notify." + category},
		"Notifier-Time": {"2026-11-20T04:39:01Z"}, "Notifier-Detail": {"detail of " + id},
	}
	letter.Data = []byte(`{"text":"secret"`)
	return letter
}

func messages(t *testing.T, js jetstream.JetStream, name string) uint64 {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	kit.Check(t, err)
	return stream.CachedInfo().State.Msgs
}

// TestDeadHostileHeaders: whatever a letter's headers hold, a terminal shows characters and takes no orders.
func TestDeadHostileHeaders(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	letter := deadLetter("errors", "\x1b[2Jsent", "a\tb\u202e\u009b31m")
	letter.Header["Notifier-Detail"] = []string{strings.Repeat("ä", 5000)}
	letter.Header["Notifier-Subject"] = []string{"notify.\x1b]0;x\x07"}
	letter.Header["Notifier-Time"] = []string{"yesterday"}
	letter.Header["Notifier-Stream-Seq"] = []string{"-1"}
	letter.Header["Notifier-Source"] = []string{"\x1b[31mci"}
	if _, err := js.PublishMsg(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	out, _ := runToEnd(t, env, exitDone, "dead", "list")
	shown, _ := runToEnd(t, env, exitDone, "dead", "show", "1")
	_, errOut := runToEnd(t, env, exitDone, "dead", "replay", "-all")
	if strings.ContainsAny(shown, "\x1b\x07\t\u202e\u009b") {
		t.Errorf("%q, expected nothing that a terminal obeys", shown)
	}
	for _, text := range []string{out, errOut} {
		if strings.ContainsAny(text, "\x1b\x07\t\u202e\u009b") {
			t.Errorf("%q, expected nothing that a terminal obeys", text)
		}
	}
	if want := "   ?]0;x?     ?[2Jsent   " + strings.Repeat("ä", 48) + "…   a?b??31m   1     ?[31mci\n1 dead letter.\n"; !strings.HasSuffix(out, want) {
		t.Errorf("%q, expected it to end in %q", out, want)
	}
	if out, _ := runToEnd(t, env, exitDone, "dead", "list", "-json"); !json.Valid([]byte(out)) {
		t.Errorf("no JSON: %q", out)
	}
}

// TestDeadStops: where no letter can go back, not every one of thousands is tried.
func TestDeadStops(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	for i := range maxFailures + 1 {
		if _, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY"))
	out, errOut := runToEnd(t, env, exitFailed, "dead", "replay", "-all")
	if out != "0 replayed, 10 failed, 1 not tried.\n" || strings.Count(errOut, "no stream stores notify.errors") != 10 ||
		!strings.HasSuffix(errOut, "notifier: 10 letters in a row could not be replayed, the others were not tried\n") {
		t.Errorf("%q %q, expected it to stop", out, errOut)
	}
	if n := messages(t, js, "NOTIFY_DEAD"); n != maxFailures+1 {
		t.Errorf("%d letters, expected all to stay", n)
	}
}

// TestDeadNotPermitted: a denied permission is reported at once, and ends the command.
func TestDeadNotPermitted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		denied  string
		command string
		want    string // on stderr
	}{
		"stream":  {"$JS.API.STREAM.INFO.>", "list", `notifier: stream NOTIFY_DEAD: nats: permissions violation: Permissions Violation for Publish to "$JS.API.STREAM.INFO.NOTIFY_DEAD"`},
		"publish": {"notify.>", "replay -all", `notifier: letter 1: not published to notify.errors: nats: permissions violation: Permissions Violation for Publish to "notify.errors"`},
		"bin":     {"$JS.API.STREAM.MSG.DELETE.>", "delete -all", "notifier: letter 1: not deleted: nats: permissions violation"},
		"payload": {"$JS.API.STREAM.MSG.GET.>", "show 1", `Publish to "$JS.API.STREAM.MSG.GET.NOTIFY_DEAD"`},
	} {
		t.Run(name, func(t *testing.T) {
			permissions := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{test.denied}}}
			s := natstest.Server(t, &server.Options{JetStream: true, Users: []*server.User{
				{Username: "all", Password: "hunter2"}, {Username: "some", Password: "hunter2", Permissions: permissions},
			}})
			js := kit.JetStream(t, "nats://all:hunter2@"+s.Addr().String())
			createStreams(t, js)
			for _, id := range []string{"e-1", "e-2"} {
				_, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", id))
				kit.Check(t, err)
			}
			env := map[string]string{"NATS_URL": "nats://some:hunter2@" + s.Addr().String()}
			began := time.Now()
			_, errOut := runToEnd(t, env, exitFailed, append([]string{"dead"}, strings.Fields(test.command)...)...)
			if !strings.Contains(errOut, test.want) || strings.Contains(errOut, "hunter2") {
				t.Errorf("%q, expected %q", errOut, test.want)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %s, expected an answer at once", took)
			}
			if n := messages(t, js, "NOTIFY_DEAD"); n != 2 {
				t.Errorf("%d letters, expected two", n)
			}
		})
	}
}
