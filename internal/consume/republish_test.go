package consume_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

func TestDroppedEventsAreRepublishedWithTheReason(t *testing.T) {
	s := newFixture(t)
	kept, err := s.conn.SubscribeSync("spilled.>")
	kit.Check(t, err)
	kit.Check(t, s.conn.Flush())
	s.started(func(c *setup) { c.category, c.dropped = "2/30m", "spilled" })
	for i := range 3 {
		s.publish("errors", fmt.Sprintf("event %d", i), "Nats-Msg-Id", fmt.Sprintf("e%d", i), "X-Trace", "abc")
	}
	s.publish("errors", "{") // dead, not dropped
	message, err := kept.NextMsg(kit.Patience)
	kit.Check(t, err)
	header := message.Header
	got := []string{
		message.Subject, string(message.Data), header.Get("Notifier-Event-Id"), header.Get("Notifier-Reason"),
		header.Get("Notifier-Subject"), header.Get("X-Trace"),
	}
	want := []string{"spilled.errors", "event 2", "e2", "category", "notify.errors", "abc"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("republished (-want +got):\n%s", diff)
	}
	s.settled(4)
	s.expectNothingLeft()
	if message, err := kept.NextMsg(100 * time.Millisecond); err != nats.ErrTimeout {
		t.Errorf("a second message %v, expected none", message)
	}
}

// TestRepublishedEventsDisplaceNoAcknowledgements stops NATS before more bytes of events are dropped than
// nats.go queues without a connection. Every acknowledgement arrives all the same.
func TestRepublishedEventsDisplaceNoAcknowledgements(t *testing.T) {
	const events, batch = 16, 4
	s := newFixture(t)
	wait, decide := undecided()
	r := s.started(wait, func(c *setup) {
		c.global, c.dropped, c.batch, c.budget = "1/30m", "spilled", batch, 128<<20
	})
	s.publish("errors", "the only one that is sent")
	s.eventually("the loop waits for the limiter", func() bool { return r.Snapshot().InFlight == 1 })
	payload := strings.Repeat("x", 1<<20-1000)
	for i := range events - 1 {
		s.publish("errors", payload, "Nats-Msg-Id", fmt.Sprintf("dropped-%d", i))
	}
	s.eventually("all have arrived", func() bool { return r.Snapshot().InFlight == events })
	s.nats.Stop()
	s.eventually("the worker knows", func() bool { return !r.connection.IsConnected() })
	decide()
	s.settled(events)
	kit.Check(t, s.nats.Start())
	s.expectNothingLeft()
	s.settled(events)
	if lines := s.log.named("cannot acknowledge"); len(lines) > 0 {
		t.Errorf("the connection has not taken acknowledgements: %v", lines)
	}
}
