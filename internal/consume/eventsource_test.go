package consume_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// TestTheLinesNameWhoHasCausedAnEvent: in every form, whatever becomes of the event.
func TestTheLinesNameWhoHasCausedAnEvent(t *testing.T) {
	s := newStation(t)
	s.started(func(c *setup) { c.overrides = "full=2/30m" })
	publish := s.publish
	const envelope = `{"specversion":"1.0","id":"structured","source":"https://u:hunter2@ci.example/1?hunter2","type":"t","data":"x"}`
	publish("full", "x", "Nats-Msg-Id", "header", "Notifier-Source", "https://ci.example/2\x1b[2J")
	publish("errors", envelope)
	publish("errors", "x", "ce-specversion", "1.0", "ce-id", "binary", "ce-source", "/ci/job%203", "ce-type", "t", "Notifier-Source", "no")
	publish("errors", "{", "Nats-Msg-Id", "dead", "Notifier-Source", "token=hunter2 "+strings.Repeat("x", 50_000))
	publish("errors", "x", "Nats-Msg-Id", "none")
	publish("full", "x", "Nats-Msg-Id", "second")
	s.lineOf("header")
	s.lineOf("second") // the limit is reached
	publish("full", "x", "Nats-Msg-Id", "dropped", "Notifier-Source", "<!channel>")
	for id, want := range map[string]any{
		"header": "https://ci.example/2\ufffd[2J", "structured": "https://ci.example/1", "binary": "/ci/job 3",
		"dead": "token=[redacted] " + strings.Repeat("x", 111), "none": nil, "dropped": "<!channel>",
	} {
		if got := s.lineOf(id)["source"]; got != want {
			t.Errorf("%s: source %q, expected %q", id, got, want)
		}
	}
	if outcome := s.lineOf("dropped")["outcome"]; outcome != "dropped" {
		t.Errorf("the last event was %v", outcome)
	}
	if log := s.log.tail(1000); strings.Contains(log, "hunter2") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

// A CloudEvent's identity is its whole source, not what is shown of it.
func TestSourcesThatLookTheSameAreNot(t *testing.T) {
	s := newStation(t)
	s.started()
	for _, query := range []string{"a", "b", "a"} {
		s.publish("errors", `{"specversion":"1.0","id":"e1","source":"https://ci.example/1?job=`+query+`","type":"t","data":"x"}`)
	}
	sources := map[any]int{}
	for _, l := range s.settled(3) {
		sources[l["source"]]++
	}
	if tallied := tally(s.settled(3)); tallied["sent"] != 2 || tallied["dropped duplicate"] != 1 || sources["https://ci.example/1"] != 3 {
		t.Errorf("%v by %v", tallied, sources)
	}
}

// A letter and a republished drop have what is known of the source, not what the publisher wrote.
func TestLettersNameWhoHasCausedAnEvent(t *testing.T) {
	s := newStation(t)
	copies, err := s.conn.SubscribeSync("notify-dropped.>")
	kit.Check(t, err)
	kit.Check(t, s.conn.Flush())
	s.started(func(c *setup) { c.overrides, c.dropped = "full=1/30m", "notify-dropped" })
	s.publish("errors", "{", "Nats-Msg-Id", "e1", "notifier-source", "https://u:hunter2@ci.example/1")
	s.publish("errors", "{", "Nats-Msg-Id", "e2")
	s.settled(2) // a letter is stored before its line
	for id, want := range map[string]string{"e1": "https://ci.example/1", "e2": ""} {
		letter := s.letter(id)
		if got := letter.Header.Get("Notifier-Source"); got != want || len(letter.Header["notifier-source"]) > 0 {
			t.Errorf("%s: %q, expected %q: %v", id, got, want, letter.Header)
		}
	}
	s.publish("full", "x", "Nats-Msg-Id", "f1")
	s.lineOf("f1")
	s.publish("full", "x", "Nats-Msg-Id", "f2", "Notifier-Source", "ci\n")
	var dropped *nats.Msg
	s.eventually("the drop is republished", func() bool {
		dropped, err = copies.NextMsg(kit.Patience)
		return err == nil
	})
	if got := dropped.Header.Get("Notifier-Source"); got != "ci" {
		t.Errorf("%q: %v", got, dropped.Header)
	}
}
