package consume_test

import (
	"strings"
	"testing"
)

// Log lines and letters show the sanitised source.
func TestEventSourceIsReported(t *testing.T) {
	s := newFixture(t)
	s.started()
	const event = `{"specversion":"1.0","id":"sent","source":"https://u:hunter2@ci.example/1","type":"t","data":"x"}`
	s.publish("errors", event)
	long := "//me:hunter2@ci " + strings.Repeat("x", 50_000)
	s.publish("errors", "{", "Nats-Msg-Id", "dead", "notifier-source", long)
	dead := "//ci " + strings.Repeat("x", 120) + "…"
	s.expectLine("sent", line{"source": "https://ci.example/1"})
	s.expectLine("dead", line{"source": dead})
	header := s.letter("dead").Header
	if header.Get("Notifier-Source") != dead || len(header["notifier-source"]) > 0 {
		t.Errorf("the letter has %q, expected %q", header["Notifier-Source"], dead)
	}
	if log := s.log.text(); strings.Contains(log, "hunter2") {
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
