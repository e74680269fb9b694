package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestDeadDiesAgain: an event that is broken dies, and dies again under the same id when it is put back as it
// is; that happens once for each replay.
func TestDeadDiesAgain(t *testing.T) {
	t.Parallel()
	server, _, env := services(t, nil)
	worker := start(t, env)
	js := kit.JetStream(t, server.URL())
	kit.Eventually(t, "the streams are there", func() bool {
		_, err := js.Stream(t.Context(), "NOTIFY_DEAD")
		return err == nil
	})
	if _, err := js.Publish(t.Context(), "notify.errors", []byte(`{"text":`)); err != nil {
		t.Fatal(err)
	}
	died := func() []string { return worker.out.lines(`"outcome":"dead"`, `"reason":"malformed"`) }
	kit.Eventually(t, "it is dead", func() bool { return len(died()) == 1 })
	id := logLine(t, died()[0])["event_id"].(string)
	out, _ := runToEnd(t, env, exitDone, "dead", "list")
	if !strings.Contains(out, "   "+id+"   1\n1 dead letter.\n") {
		t.Errorf("%q, expected the event %s", out, id)
	}
	for n := 2; n <= 3; n++ {
		if out, errOut := runToEnd(t, env, exitDone, "dead", "replay", "-all"); out != "1 replayed.\n" || errOut != "" {
			t.Errorf("%q %q, expected one to go back", out, errOut)
		}
		kit.Eventually(t, "it is dead again", func() bool { return len(died()) == n && messages(t, js, "NOTIFY_DEAD") == 1 })
		if again := logLine(t, died()[n-1])["event_id"]; again != id {
			t.Errorf("event %v died, expected %s", again, id)
		}
	}
	worker.terminate(t)
	worker.ends(t, exitDone)
}

// TestDeadIsSentOnce: replayed letters are sent under their old ids, whether a setting or Slack had rejected
// them. A second copy of a letter is dropped as a duplicate. A replay publishes one if it crashes and resumes
// after the stream's duplicate window.
func TestDeadIsSentOnce(t *testing.T) {
	t.Parallel()
	server, slack, env := services(t, nil)
	slack.Respond(devstack.Next(devstack.Response{Code: "invalid_blocks"}))
	first := startReady(t, with(env, map[string]string{"EVENT_MAX_BYTES": "10"}))
	publishes(t, env, "errors", "-id", "large", "the disk is full")
	publishes(t, env, "errors", "-id", "refused", "disk full")
	for id, reason := range map[string]string{"large": "too_large", "refused": "slack_rejected"} {
		kit.Eventually(t, id+" is dead", func() bool {
			return len(first.out.lines(`"reason":"`+reason+`"`, `"event_id":"`+id+`"`)) == 1
		})
	}
	first.terminate(t)
	first.ends(t, exitDone)
	if out, _ := runToEnd(t, env, exitDone, "dead", "replay", "-all"); out != "2 replayed.\n" {
		t.Errorf("%q, expected them to go back", out)
	}

	second := start(t, env)
	for _, id := range []string{"large", "refused"} {
		kit.Eventually(t, id+" is sent", func() bool { return len(second.out.lines(`"outcome":"sent"`, `"event_id":"`+id+`"`)) == 1 })
	}
	copied := nats.NewMsg("notify.errors")
	copied.Header = nats.Header{"Notifier-Event-Id": {"large"}, "Nats-Msg-Id": {"replay.1.2"}}
	copied.Data = []byte("the disk is full")
	_, err := kit.JetStream(t, server.URL()).PublishMsg(t.Context(), copied)
	kit.Check(t, err)
	kit.Eventually(t, "the copy is dropped", func() bool { return len(second.out.lines(`"reason":"duplicate"`, `"event_id":"large"`)) == 1 })
	if slack.Accepted() != 2 {
		t.Errorf("%d messages in Slack, expected two", slack.Accepted())
	}
}

// TestDeadDoesNotLoop: letters that come while others are put back are left for the next time.
func TestDeadDoesNotLoop(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	connection := js.Conn()
	subscription, err := connection.Subscribe("notify.>", func(m *nats.Msg) { // a worker, at its fastest
		letter := deadLetter("errors", "malformed", m.Header.Get("Notifier-Event-Id"))
		_ = connection.PublishMsg(letter)
	})
	kit.Check(t, err)
	defer func() { _ = subscription.Unsubscribe() }()
	for i := range 20 {
		if _, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := runToEnd(t, env, exitDone, "dead", "replay", "-all"); out != "20 replayed.\n" {
		t.Errorf("%q, expected each to go back once", out)
	}
	kit.Eventually(t, "all have died again", func() bool { return messages(t, js, "NOTIFY_DEAD") == 20 })
	if n := messages(t, js, "NOTIFY"); n != 20 {
		t.Errorf("%d events, expected 20", n)
	}
}

// TestDeadInterrupted ends between two letters, and says how far it came.
func TestDeadInterrupted(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	const count = 300 // a signal takes a moment to be seen, and a letter is replayed in a thousandth of a second
	for i := range count {
		if _, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	published, err := js.Conn().SubscribeSync("notify.>")
	kit.Check(t, err)
	kit.Check(t, js.Conn().Flush())
	reader, writer := fullPipe(t) // the command blocks on its first line of -json
	command := exec.Command("notifier", "dead", "replay", "-all", "-json")
	command.Stdout = writer
	p := startCommand(t, command, env)
	kit.Check(t, writer.Close())
	_, err = published.NextMsg(kit.Patience)
	kit.Check(t, err)
	p.terminate(t)
	_, err = io.Copy(io.Discard, reader)
	kit.Check(t, err)
	p.ends(t, exitFailed)
	if got := p.errOut.String(); !strings.HasSuffix(got, "notifier: interrupted\n") {
		t.Errorf("%q, expected that it was interrupted", got)
	}
	back, left := messages(t, js, "NOTIFY"), messages(t, js, "NOTIFY_DEAD")
	if back+left != count || left == 0 {
		t.Errorf("%d are back and %d are left, expected each of %d in one place", back, left, count)
	}
}

// TestDeadInterruptedWhilePublishing: if the stream has stored the event, the letter is also deleted.
func TestDeadInterruptedWhilePublishing(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY"))
	for _, id := range []string{"e-1", "e-2"} {
		_, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", id))
		kit.Check(t, err)
	}
	events, err := js.Conn().SubscribeSync("notify.>") // in place of the stream
	kit.Check(t, err)
	kit.Check(t, js.Conn().Flush())
	p := start(t, env, "dead", "replay", "-all")
	event, err := events.NextMsg(kit.Patience)
	kit.Check(t, err)
	p.terminate(t)
	select { // the command should wait for the acknowledgement
	case <-p.ended:
	case <-time.After(500 * time.Millisecond):
	}
	kit.Check(t, event.Respond([]byte(`{"stream":"NOTIFY","seq":1}`)))
	p.ends(t, exitFailed)
	if out, left := p.out.String(), messages(t, js, "NOTIFY_DEAD"); out != "1 replayed, 1 not tried.\n" || left != 1 {
		t.Errorf("%q and %d letters, expected the first to be replayed and deleted", out, left)
	}
}

// fullPipe returns a pipe with a full buffer: writes block until the reader drains it.
func fullPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	kit.Check(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	kit.Check(t, writer.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = writer.Write(make([]byte, 1<<10))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return reader, writer
}
