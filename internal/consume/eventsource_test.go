package consume_test

import (
	"strings"
	"testing"

	"notifier/test/kit"
)

// Log lines, letters and republished events show the sanitised source.
func TestEventSourceIsReported(t *testing.T) {
	s := newFixture(t)
	copies, err := s.conn.SubscribeSync("notify-dropped.>")
	kit.Check(t, err)
	kit.Check(t, s.conn.Flush())
	s.started(func(c *setup) { c.overrides, c.dropped = "full=1/30m", "notify-dropped" })
	s.publish("full", `{"specversion":"1.0","id":"sent","source":"https://u:hunter2@ci.example/1","type":"t","data":"x"}`)
	s.lineOf("sent") // the limit is reached
	s.publish("full", "x", "Nats-Msg-Id", "dropped", "Notifier-Source", "ci\n")
	s.publish("errors", "{", "Nats-Msg-Id", "dead", "notifier-source", "//me:hunter2@ci "+strings.Repeat("x", 50_000))
	s.publish("errors", "{", "Nats-Msg-Id", "none")
	dead := "//ci " + strings.Repeat("x", 120) + "…"
	for id, want := range map[string]any{"sent": "https://ci.example/1", "dropped": "ci", "dead": dead, "none": nil} {
		if got := s.lineOf(id)["source"]; got != want {
			t.Errorf("%s: source %q, expected %q", id, got, want)
		}
	}
	for id, want := range map[string]string{"dead": dead, "none": ""} {
		if header := s.letter(id).Header; header.Get("Notifier-Source") != want || len(header["notifier-source"]) > 0 {
			t.Errorf("the letter of %s has %q, expected %q", id, header["Notifier-Source"], want)
		}
	}
	dropped, err := copies.NextMsg(kit.Patience)
	kit.Check(t, err)
	if got := dropped.Header.Get("Notifier-Source"); got != "ci" {
		t.Errorf("the republished drop has %q, expected ci", got)
	}
	if log := s.log.tail(1000); strings.Contains(log, "hunter2") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

// Deduplication compares the whole source, not the shortened form in the log.
func TestSourcesAreComparedWhole(t *testing.T) {
	s := newFixture(t)
	s.started()
	for _, user := range []string{"a", "b", "a"} {
		s.publish("errors", `{"specversion":"1.0","id":"e1","source":"https://`+user+`@ci.example/1","type":"t","data":"x"}`)
	}
	sources := map[any]int{}
	for _, l := range s.settled(3) {
		sources[l["source"]]++
	}
	tallied := tally(s.settled(3))
	if tallied["sent"] != 2 || tallied["dropped duplicate"] != 1 || sources["https://ci.example/1"] != 3 {
		t.Errorf("%v by %v", tallied, sources)
	}
}
