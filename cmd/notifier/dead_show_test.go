package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// startWithLargePayloads is startWithStreams on a server that takes messages of 8 MiB.
func startWithLargePayloads(t *testing.T) (jetstream.JetStream, map[string]string) {
	t.Helper()
	s := kit.NATSServer(t, &server.Options{JetStream: true, MaxPayload: 8 << 20})
	js := kit.JetStream(t, s.ClientURL())
	createStreams(t, js)
	return js, map[string]string{"NATS_URL": s.ClientURL()}
}

// shown decodes the payload fields of -json output.
type shown struct {
	Payload *string `json:"payload"`
	Base64  *string `json:"payload_base64"`
}

// TestDeadShowAnyPayload: whatever a payload is, a terminal shows characters and takes no orders, and a
// program gets every byte.
func TestDeadShowAnyPayload(t *testing.T) {
	t.Parallel()
	js, env := startWithLargePayloads(t)
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	payloads := map[string]string{
		"nothing":        "",
		"binary, 2 MiB":  strings.Repeat(string(all[:]), 8192),
		"orders":         "\x1b[2J\x1b]0;owned\x07 \u009b31m \u202eevil\u2028next\r\n\tkept",
		"Latin-1":        "Gr\xfc\xdfe",
		"U+FFFD itself":  "\ufffd",
		"a password":     `{"specversion":"1.0","source":"https://me:hunter2@example.org","id":`,
		"no server word": `{"error":{"code":404,"err_code":10037}}`,
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			letter := deadLetter("errors", "malformed", "\x1b[2Je\u202e")
			letter.Header["Ce-Source"] = []string{"https://me:hunter2@example.org/\x1b[2J", "https:%2F%2Fme:hunter2%40example.org", "x://a:hunter2/@?#b@host"}
			letter.Header["Status"] = []string{"404"}
			letter.Data = []byte(payload)
			ack, err := js.PublishMsg(t.Context(), letter)
			kit.Check(t, err)
			seq := fmt.Sprint(ack.Sequence)
			text, _ := runToEnd(t, env, exitDone, "dead", "show", seq)
			if strings.ContainsAny(text, "\x1b\x07\r\u202e\u009b\u2028\x00") {
				t.Errorf("%.200q, expected nothing that a terminal obeys", text)
			}
			object, _ := runToEnd(t, env, exitDone, "dead", "show", "-json", seq)
			if strings.ContainsAny(object, "\x1b\x07\r\u202e\u009b\u2028\x00") || strings.Count(object, "\n") != 1 {
				t.Errorf("%.200q, expected one line", object)
			}
			var got shown
			kit.Check(t, json.Unmarshal([]byte(object), &got))
			if exact := exactly(t, got); exact != payload {
				t.Errorf("%.80q came out as %.80q", payload, exact)
			}
			for _, out := range []string{text, object} {
				if n := strings.Count(out, "hunter2"); n != strings.Count(payload, "hunter2") {
					t.Errorf("a password is shown %d times: %.1000q", n, out)
				}
			}
		})
	}
}

// exactly is the payload that -json wrote.
func exactly(t *testing.T, got shown) string {
	t.Helper()
	switch {
	case got.Payload != nil && got.Base64 == nil:
		return *got.Payload
	case got.Payload == nil && got.Base64 != nil:
		decoded, err := base64.StdEncoding.DecodeString(*got.Base64)
		kit.Check(t, err)
		return string(decoded)
	}
	t.Fatalf("%+v, expected one form of the payload", got)
	return ""
}

// TestDeadLeavesWhatIsForeign: replay and delete keep the messages that no worker wrote, whatever their headers.
func TestDeadLeavesWhatIsForeign(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY_DEAD"))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>", "notify-dead", "orders.>"}})
	kit.Check(t, err)
	for _, subject := range []string{"orders.1", "notify-dead"} {
		other := deadLetter("errors", "malformed", subject)
		other.Subject = subject
		_, err := js.PublishMsg(t.Context(), other)
		kit.Check(t, err)
	}
	_, err = js.Publish(t.Context(), "notify-dead.errors", nil) // an acknowledgement, or anything else
	kit.Check(t, err)
	for command, verb := range map[string]string{"replay": "replayed", "delete": "deleted"} {
		out, errOut := runToEnd(t, env, exitDone, "dead", command, "-all")
		want := `letter 1 left: it is no dead letter: its subject "orders.1" is not below notify-dead`
		if out != "0 "+verb+", 3 left.\n" || !strings.Contains(errOut, want) || strings.Count(errOut, " left: ") != 3 {
			t.Errorf("%q %q, expected all to be left", out, errOut)
		}
	}
	if dead, events := messages(t, js, "NOTIFY_DEAD"), messages(t, js, "NOTIFY"); dead != 3 || events != 0 {
		t.Errorf("%d messages are left and %d were published, expected 3 and none", dead, events)
	}
}

// TestDeadDeleteRefused: of a stream that allows no deletion nothing is deleted, and that is said.
func TestDeadDeleteRefused(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY_DEAD"))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>"}, DenyDelete: true})
	kit.Check(t, err)
	_, err = js.PublishMsg(t.Context(), deadLetter("errors", "malformed", "e-1"))
	kit.Check(t, err)
	for _, selection := range [][]string{{"-all"}, {"1"}, {"-reason", "malformed"}} {
		out, errOut := runToEnd(t, env, exitFailed, append([]string{"dead", "delete"}, selection...)...)
		if !strings.HasPrefix(out, "0 deleted, 1 failed") || !strings.Contains(errOut, "letter 1: not deleted: ") {
			t.Errorf("%q: %q %q", selection, out, errOut)
		}
	}
	if n := messages(t, js, "NOTIFY_DEAD"); n != 1 {
		t.Errorf("%d letters, expected it to stay", n)
	}
}
