package consume_test

import (
	"testing"

	"notifier/internal/devstack"
)

// The first worker crashes after admission and before the post. The second worker posts the event in the
// slot already charged.
func TestRedeliveryIsNotChargedAgain(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	first := s.started(func(c *setup) { c.category, c.shutdown, c.concurrency = "3/30m", 0, 1 })
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	s.publishMany("errors", 3)
	s.eventually("all are admitted and held", func() bool {
		return s.charged() == 3 && len(s.log.waits("slack")) == 1
	})
	first.crash()
	if n := len(s.log.settled()); n != 0 {
		t.Fatalf("%d events were settled before the crash", n)
	}
	s.started(quick, func(c *setup) { c.category = "3/30m" })
	for _, l := range s.settled(3) {
		// The posts of the others never began.
		if l["outcome"] != "sent" || l["stream_seq"] != 1.0 && l["ambiguous"] != nil {
			t.Errorf("line %v, expected sent, and not ambiguous without a post", l)
		}
	}
	s.expectEachPostedOnce(3)
	s.expectCharged(3)
	s.expectNothingLeft()
}

// dieUnacknowledged starts a worker that crashes between the log line and the acknowledgement.
func (s *fixture) dieUnacknowledged(id string) {
	s.Helper()
	fatal := &logLines{}
	first := s.started(func(c *setup) { c.log, c.shutdown = fatal, 0 })
	fatal.onLine = func(l line) {
		if l["outcome"] == "sent" {
			first.connection.Close()
		}
	}
	s.publish("errors", "hello", "Nats-Msg-Id", id)
	s.eventually("it is sent", func() bool { return len(fatal.settled()) == 1 })
	first.crash()
}

// A mute does not hide that the event was sent.
func TestRedeliveryOfASentEventIsADuplicate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*setup){
		"not muted": func(*setup) {}, "muted": with(newMuteSwitch("errors")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.createConsumer(impatient)
			s.dieUnacknowledged("e1")
			s.started(change)
			s.expectLine("e1", line{"outcome": "dropped", "reason": "duplicate"})
			s.expectEachPostedOnce(1)
			s.expectNothingLeft()
		})
	}
}
