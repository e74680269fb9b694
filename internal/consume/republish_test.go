package consume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

func keepDropped(c *setup) { c.category, c.dropped = "2/30m", "spilled" }

func TestDroppedEventsAreRepublishedWithTheReason(t *testing.T) {
	s := newFixture(t)
	kept, err := s.conn.SubscribeSync("spilled.>")
	kit.Check(t, err)
	kit.Check(t, s.conn.Flush())
	s.started(keepDropped)
	for i := range 3 {
		s.publish("errors", fmt.Sprintf("event %d", i), "Nats-Msg-Id", fmt.Sprintf("e%d", i), "X-Trace", "abc")
	}
	s.publish("errors", "{") // dead, not dropped
	message, err := kept.NextMsg(kit.Patience)
	kit.Check(t, err)
	header := message.Header
	got := map[string]string{
		"subject": message.Subject, "data": string(message.Data),
		"id": header.Get("Notifier-Event-Id"), "reason": header.Get("Notifier-Reason"),
		"from": header.Get("Notifier-Subject"), "own": header.Get("X-Trace"),
		"seq": header.Get("Notifier-Stream-Seq"),
	}
	want := map[string]string{
		"subject": "spilled.errors", "data": "event 2", "id": "e2",
		"reason": "category", "from": "notify.errors", "own": "abc", "seq": "3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("republished (-want +got):\n%s", diff)
	}
	if _, err := time.Parse(time.RFC3339Nano, header.Get("Notifier-Time")); err != nil {
		t.Errorf("time: %v", err)
	}
	s.settled(4)
	s.expectNothingLeft()
	if message, err := kept.NextMsg(100 * time.Millisecond); err != nats.ErrTimeout {
		t.Errorf("a second message %v, expected none", message)
	}
}
