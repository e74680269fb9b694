package consume_test

import (
	"fmt"
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
