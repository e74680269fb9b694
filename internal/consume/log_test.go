package consume_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// TestUnloggedEventsAreHeld breaks the log for events of every outcome. The worker stops fetching, and
// acknowledges nothing. Once the log works again, each event has one line.
func TestUnloggedEventsAreHeld(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(ackWait(2 * time.Second))
	const limit = 12
	r := s.started(func(c *setup) { c.category, c.batch = fmt.Sprint(limit, "/30m"), 8 }) // the worker holds 32 events
	s.publish("errors", "before")
	s.settled(1)
	s.log.broken.Store(true)
	const events = 200
	s.publishMany("errors", events-50)
	for i := range 50 {
		s.publish(fmt.Sprint("bad", i), "{")
	}
	s.eventually("the worker waits for its log", func() bool { return r.waitsFor("log") != "" })
	s.eventually("it holds events for that", func() bool { return r.Snapshot().HeldFor["log"] > 0 })
	s.eventually("it is not ready, and says why", func() bool {
		return slices.ContainsFunc(r.Ready(t.Context()), func(reason string) bool {
			return strings.HasPrefix(reason, "log: ") && strings.Contains(reason, "no space left on device")
		})
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if info := s.consumerInfo(); info.NumRedelivered > 0 || info.NumAckPending > 32 {
			t.Fatalf("%d events redelivered and %d held, expected none, and 32 at most",
				info.NumRedelivered, info.NumAckPending)
		}
	}
	if left := s.streamInfo(streamName).State.Msgs; left != events {
		t.Errorf("%d of %d events are in the stream: some were acknowledged without a line", left, events)
	}
	if err := r.Live(); err != nil {
		t.Errorf("the worker is not alive: %v", err)
	}
	s.log.broken.Store(false)
	s.settled(1 + events)
	s.expectNothingLeft()
	seen := map[any]bool{}
	for _, l := range s.log.settled() {
		if seen[l["stream_seq"]] || l["reason"] == "duplicate" {
			t.Errorf("a second line: %v", l)
		}
		seen[l["stream_seq"]] = true
	}
	s.expectEachPostedOnce(limit)
	s.eventually("it is ready again", func() bool { return len(r.Ready(t.Context())) == 0 })
}

// TestLogFailureDuringAPostHoldsTheEvent breaks the log while the event is posted and recorded as sent. The
// next worker logs the redelivery as a duplicate.
func TestLogFailureDuringAPostHoldsTheEvent(t *testing.T) {
	s := newFixture(t)
	first := s.started(func(c *setup) { c.shutdown = 500 * time.Millisecond })
	s.slack.Respond(devstack.Next(devstack.Response{Delay: 300 * time.Millisecond}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("the post is under way", func() bool { return s.slack.Requests() == 1 })
	s.log.broken.Store(true)
	s.eventually("the event is held", func() bool {
		return first.Snapshot().HeldFor["log"] == 1 && s.slack.Accepted() == 1
	})
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	s.log.broken.Store(false)
	second := &logLines{}
	s.started(func(c *setup) { c.log = second })
	s.eventually("it has a line", func() bool { return len(second.settled()) == 1 })
	if l := second.settled()[0]; l["reason"] != "duplicate" || l["redelivered"] != true {
		t.Errorf("line %v, expected a duplicate that was redelivered", l)
	}
	s.expectNothingLeft()
	s.expectEachPostedOnce(1)
}

// TestIdleWorkerNoticesBrokenLog breaks the log while no event needs it. The worker becomes ready again by
// itself.
func TestIdleWorkerNoticesBrokenLog(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.log.broken.Store(true)
	s.eventually("it waits for its log", func() bool {
		return r.waitsFor("log") != "" && len(r.Ready(t.Context())) == 1
	})
	s.log.broken.Store(false)
	r.expectReady()
	s.publish("errors", "hello")
	s.settled(1)
	s.expectNothingLeft()
}
