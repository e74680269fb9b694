package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/test/kit"
	"notifier/test/natstest"
)

// startWithLargePayloads is startWithStreams on a server that takes messages of 8 MiB.
func startWithLargePayloads(t *testing.T) (jetstream.JetStream, map[string]string) {
	t.Helper()
	s := natstest.Server(t, &server.Options{JetStream: true, MaxPayload: 8 << 20})
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
		"nothing":       "",
		"binary, 2 MiB": strings.Repeat(string(all[:]), 8192),
		"orders":        "\x1b[2J\x1b]0;owned\x07 \u009b31m \u202eevil\u2028next\r\n\tkept",
		"a password":    `{"specversion":"1.0","source":"https://me:hunter2@example.org","id":`,
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			letter := deadLetter("errors", "malformed", "\x1b[2Je\u202e")
			letter.Header["Ce-Source"] = []string{"https://me:hunter2@example.org/\x1b[2J", "https:%2F%2Fme:hunter2%40example.org", "x://a:hunter2/@?#b@host",
				"https%3A%2F%2Fme:hunter2%40host", "see=https%3a%2f%2fme%3ahunter2%40host", "https%253A%252F%252Fme%253Ahunter2%2540host",
				"https%3A//me%3Ahunter2%40host", "https://me:hunter2%40host", "//me:hunter2@host", `{"url":"https:\/\/me:hunter2@host"}`}
			letter.Header["Status"] = []string{"404"}
			letter.Data = []byte(payload)
			// A busy machine needs longer than the five seconds of a call without a deadline.
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
			defer cancel()
			ack, err := js.PublishMsg(ctx, letter)
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
