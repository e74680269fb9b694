package consume_test

import (
	"fmt"
	"strings"
	"testing"

	"notifier/test/kit"
)

// TestLettersSurviveNATSOutage stops NATS while the worker holds more undecodable events than the letterbox
// may hold. During the outage they can neither be stored nor returned.
func TestLettersSurviveNATSOutage(t *testing.T) {
	const events = 40
	s := newFixture(t)
	wait, decide := undecided()
	r := s.started(wait)
	s.publish("good", "hello")
	s.eventually("the loop waits for the limiter", func() bool { return r.Snapshot().InFlight == 1 })
	payload := "{" + strings.Repeat("x", 60_000)
	for i := range events {
		s.publish("errors", payload, "Nats-Msg-Id", fmt.Sprintf("bad-%d", i))
	}
	s.eventually("all have arrived", func() bool { return r.Snapshot().InFlight == 1+events })
	s.nats.Stop()
	s.eventually("the worker knows", func() bool { return !r.connection.IsConnected() })
	decide()
	s.eventually("all wait for their letters, or have ended without", func() bool {
		return r.DeadEvents()+len(s.log.settled())-len(s.log.named("notification sent")) == events
	})
	kit.Check(t, s.nats.Start())
	for _, l := range s.settled(1 + events) {
		if l["letter"] != nil {
			t.Errorf("%v ended without a letter: %v", l["event_id"], l)
		}
	}
	if n := len(s.letters()); n != events {
		t.Errorf("%d letters, expected %d", n, events)
	}
	s.expectNothingLeft()
	s.expectEachPostedOnce(1)
}
