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

// TestDeadMany: list counts all letters but shows only the newest, and replay puts every letter back.
func TestDeadMany(t *testing.T) {
	t.Parallel()
	const count = 300
	js, env := startWithStreams(t)
	for i := range count {
		if _, err := js.PublishMsgAsync(deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i+1)), jetstream.WithStallWait(kit.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	out, _ := runToEnd(t, env, exitDone, "dead", "list", "-n", "2")
	lines := strings.Split(out, "\n")
	row := func(n int) string { return fmt.Sprintf(" %-8s   %d", fmt.Sprintf("e-%d", n), n) }
	summary := fmt.Sprintf("%d dead letters: %d malformed; %d older ones not shown, see -n", count, count, count-2)
	if len(lines) != 6 || !strings.HasSuffix(lines[1], row(count-1)) || !strings.HasSuffix(lines[2], row(count)) || lines[4] != summary {
		t.Errorf("%q, expected the last two of %d", out, count)
	}
	out, _ = runToEnd(t, env, exitDone, "dead", "replay")
	if out != fmt.Sprintf("%d replayed, 0 left\n", count) {
		t.Errorf("%q, expected all to go back", out)
	}
	if back, left := messages(t, js, "NOTIFY"), messages(t, js, "NOTIFY_DEAD"); back != uint64(count) || left != 0 {
		t.Errorf("%d are back and %d are left, expected all to be back", back, left)
	}
}

// TestDeadJSON: -json prints every field of a letter except its payload.
func TestDeadJSON(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	for _, letter := range []*nats.Msg{deadLetter("errors", "malformed", "e-1"), deadLetter("deploys", "too_large", "e-2")} {
		letter.Header.Set("Notifier-Stream-Seq", "17")
		if letter.Subject == "notify-dead.deploys" {
			letter.Header.Set("Notifier-Source", "/ci")
			letter.Header.Set("Notifier-Shortened", "70000")
		}
		if _, err := js.PublishMsg(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
	}
	const first = `"time":"2026-11-20T04:39:01Z","category":"errors","reason":"malformed","detail":"detail of e-1","event_id":"e-1","subject":"notify.errors","stream_seq":17,"bytes":16,"seq":1`
	const second = `"time":"2026-11-20T04:39:01Z","category":"deploys","reason":"too_large","detail":"detail of e-2","event_id":"e-2","source":"/ci","subject":"notify.deploys","stream_seq":17,"bytes":16,"shortened":70000,"seq":2`
	out, errOut := runToEnd(t, env, exitDone, "dead", "list", "-json")
	if want := "{" + first + "}\n{" + second + "}\n"; out != want || errOut != "" {
		t.Errorf("%s%s, expected\n%s", out, errOut, want)
	}
	out, errOut = runToEnd(t, env, exitDone, "dead", "list", "-json", "-n", "1")
	if want := "{" + second + "}\n"; out != want || errOut != "2 dead letters: 1 malformed, 1 too_large; 1 older one not shown, see -n\n" {
		t.Errorf("%s%s, expected\n%s", out, errOut, want)
	}
	const why = "it was shortened: 16 of the payload's 70000 bytes are kept"
	out, errOut = runToEnd(t, env, exitDone, "dead", "replay", "-json")
	want := "{" + first + `,"outcome":"put_back","new_stream":"NOTIFY","new_stream_seq":1}` + "\n{" +
		second + `,"outcome":"left","why":"` + why + "\"}\n" + `{"put_back":1,"left":1}` + "\n"
	// On a busy machine a line about the progress comes first.
	if out != want || !strings.HasSuffix(errOut, "letter 2 (e-2) was left: "+why+"\n") {
		t.Errorf("%s%s, expected\n%s", out, errOut, want)
	}
	out, errOut = runToEnd(t, env, exitDone, "dead", "list", "-json", "-category", "errors")
	if out != "" || errOut != "no match among 1 dead letter\n" {
		t.Errorf("%q %q, expected nothing for a program", out, errOut)
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
	_, errOut := runToEnd(t, env, exitDone, "dead", "replay")
	for _, text := range []string{out, errOut} {
		if strings.ContainsAny(text, "\x1b\x07\t\u202e\u009b") {
			t.Errorf("%q, expected nothing that a terminal obeys", text)
		}
	}
	if want := "   ?]0;x?     ?[2Jsent   " + strings.Repeat("ä", 48) + "…   a?b??31m   1     ?[31mci\n\n1 dead letter: 1 other\n"; !strings.HasSuffix(out, want) {
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
	for i := range mostFailures + 1 {
		if _, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY"))
	out, errOut := runToEnd(t, env, exitFailed, "dead", "replay")
	if out != "0 replayed, 10 left\n" || strings.Count(errOut, "no stream stores notify.errors") != 10 ||
		!strings.HasSuffix(errOut, "notifier: 10 letters in a row could not be published, the others were not tried\n") {
		t.Errorf("%q %q, expected it to stop", out, errOut)
	}
	if n := messages(t, js, "NOTIFY_DEAD"); n != mostFailures+1 {
		t.Errorf("%d letters, expected all to stay", n)
	}
}

// TestDeadNotPermitted: a denied permission is reported at once.
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
		"publish": {"notify.>", "replay", `notifier: letter 1 (e-1): publish to notify.errors: nats: permissions violation: Permissions Violation for Publish to "notify.errors"`},
		"bin":     {"$JS.API.STREAM.MSG.DELETE.>", "delete -all", "notifier: delete letter 1 of stream NOTIFY_DEAD: nats: permissions violation"},
		"payload": {"$JS.API.STREAM.MSG.GET.>", "show 1", `Publish to "$JS.API.STREAM.MSG.GET.NOTIFY_DEAD"`},
		"delete":  {"$JS.API.STREAM.MSG.DELETE.>", "replay", "notifier: letter 1 (e-1) was replayed, but not deleted: delete letter 1 of stream NOTIFY_DEAD: nats: permissions violation"},
	} {
		t.Run(name, func(t *testing.T) {
			permissions := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{test.denied}}}
			s := kit.NATSServer(t, &server.Options{JetStream: true, Users: []*server.User{
				{Username: "all", Password: "hunter2"}, {Username: "some", Password: "hunter2", Permissions: permissions},
			}})
			js := kit.JetStream(t, "nats://all:hunter2@"+s.Addr().String())
			createStreams(t, js)
			_, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", "e-1"))
			kit.Check(t, err)
			env := map[string]string{"NATS_URL": "nats://some:hunter2@" + s.Addr().String()}
			began := time.Now()
			_, errOut := runToEnd(t, env, exitFailed, append([]string{"dead"}, strings.Fields(test.command)...)...)
			if !strings.Contains(errOut, test.want) || strings.Contains(errOut, "hunter2") {
				t.Errorf("%q, expected %q", errOut, test.want)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %s, expected an answer at once", took)
			}
			if n := messages(t, js, "NOTIFY_DEAD"); n != 1 {
				t.Errorf("%d letters, expected one", n)
			}
		})
	}
}
