package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
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

// TestDeadMany: list counts all letters but shows only the newest, and replay and delete work on all of them.
func TestDeadMany(t *testing.T) {
	t.Parallel()
	const count = 2000
	js, env := startWithStreams(t)
	for i := range count {
		if _, err := js.PublishMsgAsync(deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i+1)), jetstream.WithStallWait(kit.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	out, _ := runToEnd(t, env, exitDone, "dead", "list", "-n", "3")
	lines := strings.Split(out, "\n")
	row := func(n int) string { return fmt.Sprintf(" %-8s   %d", fmt.Sprintf("e-%d", n), n) }
	note := fmt.Sprintf("%d dead letters. %d older ones are not shown: see -n.", count, count-3)
	if len(lines) != 6 || !strings.HasSuffix(lines[1], row(count-2)) || !strings.HasSuffix(lines[3], row(count)) || lines[4] != note {
		t.Errorf("%q, expected the last three of %d", out, count)
	}
	out, _ = runToEnd(t, env, exitDone, "dead", "replay", "-all", "-n", "700")
	if out != "700 replayed, 1300 not tried.\n" {
		t.Errorf("%q, expected the oldest to go back", out)
	}
	if back, left := messages(t, js, "NOTIFY"), messages(t, js, "NOTIFY_DEAD"); back != 700 || left != 1300 {
		t.Errorf("%d are back and %d are left, expected 700 to be back", back, left)
	}
	out, _ = runToEnd(t, env, exitDone, "dead", "delete", "-all")
	if out != "1300 deleted.\n" || messages(t, js, "NOTIFY_DEAD") != 0 {
		t.Errorf("%q, expected all to be deleted", out)
	}
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

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	command := exec.Command("notifier", "dead", "replay", "-all")
	command.Stdout = full
	p := startCommand(t, command, env)
	p.ends(t, exitFailed)
	for _, want := range []string{"10 letters in a row could not be replayed", "no space left"} {
		if !strings.Contains(p.errOut.String(), want) {
			t.Errorf("%q, expected %q although the counts cannot be written", p.errOut.String(), want)
		}
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
		"reader":  {"$JS.API.CONSUMER.CREATE.>", "list", `Publish to "$JS.API.CONSUMER.CREATE.NOTIFY_DEAD.`},
		"letters": {"$JS.API.CONSUMER.MSG.NEXT.>", "list", `Publish to "$JS.API.CONSUMER.MSG.NEXT.NOTIFY_DEAD.`},
		"publish": {"notify.>", "replay -all", `notifier: letter 1: not published to notify.errors: nats: permissions violation: Permissions Violation for Publish to "notify.errors"`},
		"bin":     {"$JS.API.STREAM.MSG.DELETE.>", "delete -all", "notifier: letter 1: not deleted: nats: permissions violation"},
		"payload": {"$JS.API.STREAM.MSG.GET.>", "show 1", `Publish to "$JS.API.STREAM.MSG.GET.NOTIFY_DEAD"`},
		"delete":  {"$JS.API.STREAM.MSG.DELETE.>", "replay -all", "notifier: letter 1: published, but not deleted: nats: permissions violation"},
	} {
		t.Run(name, func(t *testing.T) {
			permissions := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{test.denied}}}
			s := kit.NATSServer(t, &server.Options{JetStream: true, Users: []*server.User{
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
			if n := messages(t, js, "NOTIFY"); n > 1 {
				t.Errorf("%d events are back, expected the command to end at the denial", n)
			}
		})
	}
}
