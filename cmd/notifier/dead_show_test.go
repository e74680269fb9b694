package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
)

// startWithLargePayloads is startWithStreams on a server that takes messages of 8 MiB.
func startWithLargePayloads(t *testing.T) (jetstream.JetStream, map[string]string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 8 << 20,
	})
	kit.Check(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(kit.Patience) {
		t.Fatal("no server")
	}
	js := kit.JetStream(t, "nats://"+s.Addr().String())
	for name, subject := range map[string]string{"NOTIFY": "notify.>", "NOTIFY_DEAD": "notify-dead.>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	return js, map[string]string{"NATS_URL": "nats://" + s.Addr().String()}
}

// shown is what -json writes of a payload.
type shown struct {
	Payload *string `json:"payload"`
	Base64  *string `json:"payload_base64"`
}

// TestDeadShowAnyPayload: whatever a payload is, a terminal shows characters and takes no orders, and a program gets every byte.
func TestDeadShowAnyPayload(t *testing.T) {
	t.Parallel()
	js, env := startWithLargePayloads(t)
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	payloads := map[string]string{
		"nothing":        "",
		"every byte":     string(all[:]),
		"binary, 2 MiB":  strings.Repeat(string(all[:]), 8192),
		"a text, 2 MiB":  strings.Repeat("disk full ", 1<<21/10),
		"orders":         "\x1b[2J\x1b]0;owned\x07 \u009b31m \u202eevil\u2028next\r\n\tkept",
		"Latin-1":        "Gr\xfc\xdfe",
		"a broken rune":  "\xf0\x9f",
		"U+FFFD itself":  "\ufffd",
		"like a letter":  "letter 1 of stream NOTIFY_DEAD",
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

// TestDeadDeleteMany: all letters are deleted, and of what others put among them nothing.
func TestDeadDeleteMany(t *testing.T) {
	t.Parallel()
	deleteMany(t, 1000)
}

func deleteMany(t *testing.T, count int) {
	t.Helper()
	js, env := startWithStreams(t)
	others := 0
	for i := range count {
		letter := deadLetter("errors", "malformed", fmt.Sprintf("e-%d", i+1))
		if i%100 == 50 {
			others++
			letter = nats.NewMsg("notify-dead.errors") // an acknowledgement, or anything else
		}
		if _, err := js.PublishMsgAsync(letter, jetstream.WithStallWait(kit.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	out, errOut := runToEnd(t, env, exitDone, "dead", "delete", "-all")
	want := fmt.Sprintf("%d deleted, %d left\n", count-others, others)
	if out != want || strings.Count(errOut, " was left: it is no dead letter: ") != others {
		t.Errorf("%q %q, expected all letters to be deleted", out, errOut)
	}
	if n := messages(t, js, "NOTIFY_DEAD"); n != uint64(others) {
		t.Errorf("%d messages are left, expected what is no letter", n)
	}
}

// TestDeadDeleteRefused: nothing is deleted from a stream that is not the letters', or that allows no deletion.
func TestDeadDeleteRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config jetstream.StreamConfig
		want   string
	}{
		"other subjects": {
			jetstream.StreamConfig{Subjects: []string{"notify-dead.errors", "orders.>"}},
			`does not store notify-dead.>, where dead letters go (DEAD_LETTER_SUBJECT); its subjects are ["notify-dead.errors" "orders.>"], and nothing was deleted`,
		},
		"no deletion": {
			jetstream.StreamConfig{Subjects: []string{"notify-dead.>"}, DenyDelete: true},
			"stream NOTIFY_DEAD does not allow messages to be deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			js, env := startWithStreams(t)
			kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY_DEAD"))
			test.config.Name = "NOTIFY_DEAD"
			_, err := js.CreateStream(t.Context(), test.config)
			kit.Check(t, err)
			_, err = js.PublishMsg(t.Context(), deadLetter("errors", "malformed", "e-1"))
			kit.Check(t, err)
			for _, selection := range [][]string{{"-all"}, {"1"}, {"-reason", "malformed"}} {
				out, errOut := runToEnd(t, env, exitFailed, append([]string{"dead", "delete"}, selection...)...)
				if out != "" || !strings.Contains(errOut, test.want) {
					t.Errorf("%q: %q %q, expected %q", selection, out, errOut, test.want)
				}
			}
			if n := messages(t, js, "NOTIFY_DEAD"); n != 1 {
				t.Errorf("%d letters, expected it to stay", n)
			}
		})
	}
}

// TestDeadDeleteKeepsOthers: a stream that also holds other subjects loses letters alone, whatever the headers of the rest say.
func TestDeadDeleteKeepsOthers(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY_DEAD"))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>", "notify-dead", "orders.>"}})
	kit.Check(t, err)
	for _, subject := range []string{"orders.1", "notify-dead", "notify-dead.errors"} {
		letter := deadLetter("errors", "malformed", subject)
		letter.Subject = subject
		_, err := js.PublishMsg(t.Context(), letter)
		kit.Check(t, err)
	}
	out, errOut := runToEnd(t, env, exitDone, "dead", "delete", "-all")
	if out != "1 deleted, 2 left\n" || !strings.Contains(errOut, `letter 1 (orders.1) was left: it is no dead letter: its subject "orders.1" is not below notify-dead`) {
		t.Errorf("%q %q, expected one letter to go", out, errOut)
	}
}
