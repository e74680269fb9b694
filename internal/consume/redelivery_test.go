package consume_test

import (
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
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

func TestRedeliveryOfASentEventIsADuplicate(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	s.dieUnacknowledged("e1")
	s.started()
	s.expectLine("e1", line{"outcome": "dropped", "reason": "duplicate"})
	s.expectEachPostedOnce(1)
	s.expectNothingLeft()
}

// The next worker need not wait for AckWait if the first worker had time to return its events.
func TestReturnedEventsAreRedeliveredAtOnce(t *testing.T) {
	s := newFixture(t)
	first := s.started(func(c *setup) { c.shutdown, c.concurrency = 0, 1 })
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	s.publishMany("errors", 10)
	s.eventually("all are admitted and held", func() bool {
		return s.charged() == 10 && len(s.log.waits("slack")) == 1
	})
	began := time.Now()
	kit.Check(t, first.stop())
	s.started(quick)
	s.settled(10)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("they are settled after %s, expected well within the consumer's 20s", took)
	}
	s.expectEachPostedOnce(10)
	s.expectCharged(10)
}
