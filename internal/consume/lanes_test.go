package consume_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// The default channel is C0DEFAULT; category deploys goes to C0DEPLOYS.

// blocked is the page of a firewall, for an event that Slack never accepts.
var blocked = devstack.Response{
	Status: http.StatusForbidden,
	Body:   "<!DOCTYPE html><title>403 Forbidden</title>",
	Header: map[string]string{"Content-Type": "text/html; charset=utf-8"},
}

// failTexts gives posts that contain text this response.
func (s *fixture) failTexts(text string, response devstack.Response) {
	s.slack.Respond(func(r devstack.Request) *devstack.Response {
		if !r.IsPost() || !strings.Contains(r.Message.Text, text) {
			return nil
		}
		return &response
	})
}

// Three replicas post a storm of events to one channel.
func TestPaceKeepsChannelBelowSlackLimit(t *testing.T) {
	s := newFixture(t)
	s.slack.SetLimit(s.limit("12/1s"), time.Second)
	for range 3 {
		s.started(func(c *setup) { c.pace = "10/1s" })
	}
	s.publishMany("errors", 50)
	s.settled(50)
	s.expectEachPostedOnce(50)
	if refused := s.slack.Limited("C0DEFAULT"); refused > 0 {
		t.Errorf("Slack refused %d posts, expected none", refused)
	}
}

// Events that exceed the share of a slow channel go back to the server, so decisions for other channels
// continue.
func TestSlowChannelDoesNotBlockDecisions(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.pace, c.batch, c.overrides = "1/1h", 16, "none=1/30m" })
	s.publishMany("errors", 300) // the worker holds 64
	s.publish("deploys", "other channel")
	s.publish("none", "to the slow channel")
	s.publish("none", "refused by its limit")
	s.eventually("what can be posted is, and what is refused is dropped", func() bool {
		return cmp.Equal(map[string]int{"sent": 2, "dropped category": 1}, tally(s.log.settled()))
	})
	s.eventually("all others wait here or at the server", func() bool {
		return s.charged() == 303-1 && s.consumerInfo().NumPending == 0
	})
	if n := r.Snapshot().Channels[0].Queued; n > 25 {
		t.Errorf("%d events wait in the worker, expected half of 48", n)
	}
}

func TestReturnedEventsArePostedOnce(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.batch, c.category, c.global = 4, "100/30m", "100/30m" })
	s.failTexts("event", blocked)
	s.publishMany("errors", 40)
	s.eventually("some were given back", func() bool { return s.charged() == 40 })
	s.slack.Respond(nil)
	s.settled(40)
	s.expectEachPostedOnce(40)
	s.expectCharged(40)
	s.expectNothingLeft()
}

// While the server may keep no more events, a full worker keeps those of a failing channel. It hands them
// back as soon as the server may, although no event comes that it could add.
func TestFullWorkerHandsBackWhenItMay(t *testing.T) {
	s := newFixture(t)
	const held = 20
	s.createConsumer(func(config *jetstream.ConsumerConfig) { config.MaxAckPending = 2 * held })
	s.publishMany("other", held)
	consumer, err := s.js.Consumer(t.Context(), streamName, consumerName)
	kit.Check(t, err)
	batch, err := consumer.Fetch(held)
	kit.Check(t, err)
	var others []jetstream.Msg // of another worker, which hangs
	for message := range batch.Messages() {
		others = append(others, message)
	}
	r := s.started(func(c *setup) { c.batch, c.category, c.global = 4, "100/30m", "100/30m" })
	s.failTexts("event", blocked)
	s.publishMany("errors", 16) // what the worker holds
	s.eventually("the worker is full", func() bool { return r.Snapshot().Held == 16 })
	s.publish("deploys", "to a channel that works")
	for _, message := range others {
		kit.Check(t, message.Ack())
	}
	s.eventually("the other channel gets its message", func() bool { return len(s.posted()) == 1 })
}

// If the server takes no events back, a full worker stops fetching and is not ready.
func TestFullWorkerIsNotReady(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(func(config *jetstream.ConsumerConfig) { config.MaxDeliver = 5 })
	r := s.started(func(c *setup) { c.batch, c.routes = 4, map[string]string{"builds": "C0BUILDS"} })
	s.failTexts("event", blocked)
	for i := range 30 { // no channel has half of the events
		s.publish([]string{"errors", "deploys", "builds"}[i%3], fmt.Sprint("event ", i))
	}
	s.eventually("the worker reports that it is full", func() bool {
		ready := strings.Join(r.Ready(t.Context()), "\n")
		return strings.Contains(ready, "worker: no room is left beside 16 events for slow channels, most of them for ")
	})
	s.slack.Respond(nil)
	s.settled(30)
	r.expectReady()
	s.expectEachPostedOnce(30)
}

// An event that Slack never accepts ends as dead. Other events of the channel are posted between its
// attempts.
func TestPoisonedEventDoesNotBlockItsChannel(t *testing.T) {
	s := newFixture(t)
	s.failTexts("poison", blocked)
	s.createStream(nil)
	s.publish("errors", "poison", "Nats-Msg-Id", "poison")
	s.publishMany("errors", 20)
	s.started(func(c *setup) { c.concurrency = 1 }) // so the event fails once before another is tried
	lines := s.settled(21)
	if before := slices.IndexFunc(lines, func(l line) bool { return l["event_id"] == "poison" }); before < 14 {
		t.Errorf("%d others are posted before the one that fails 15 times, expected one between two attempts", before)
	}
	s.expectLine("poison", line{
		"outcome": "dead", "reason": "undeliverable", "detail": "http_403", "attempts": 15.0,
	})
	letter := s.letter("poison")
	if string(letter.Data) != "poison" || letter.Header.Get("Notifier-Reason") != "undeliverable" {
		t.Errorf("the dead letter is %q with the headers %v", letter.Data, letter.Header)
	}
	s.expectCharged(21) // the event may be in the channel
	s.expectNothingLeft()
	// Once Slack accepts the message, the letter can be replayed at once.
	s.slack.Respond(nil)
	s.publish("errors", "poison", "Notifier-Event-Id", "poison", "Nats-Msg-Id", "replay")
	if replayed := s.settled(22)[21]; replayed["event_id"] != "poison" || replayed["outcome"] != "sent" {
		t.Errorf("line %v, expected that the replay is sent", replayed)
	}
}

// An event that expires while waiting for its channel is dropped and refunded.
func TestExpiredWhileWaitingIsRefunded(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.pace, c.maxAge = "1/3s", 2*time.Second })
	s.publish("errors", "first")
	s.publish("errors", "second")
	s.expectOutcomes(map[string]int{"sent": 1, "dropped expired": 1}, s.settled(2))
	s.expectCharged(1)
	s.expectNothingLeft()
}

// The event may be in Slack, so its slot stays in use. It is no longer in flight, and another event may have its id.
func TestExpiredAfterAPostKeepsItsSlot(t *testing.T) {
	s := newFixture(t)
	s.started(webhook, func(c *setup) { c.maxAge = 2 * time.Second })
	s.slack.Respond(devstack.Always(devstack.Response{Code: "internal_error"}))
	s.publish("errors", "perhaps", "Nats-Msg-Id", "perhaps")
	s.expectLine("perhaps", line{"reason": "expired", "ambiguous": true})
	s.expectCharged(1)
	s.expectForgotten("perhaps")
	s.slack.Respond(nil)
	s.publish("errors", "perhaps", "Notifier-Event-Id", "perhaps", "Nats-Msg-Id", "again")
	if again := s.settled(2)[1]; again["event_id"] != "perhaps" || again["outcome"] != "sent" {
		t.Errorf("line %v, expected that the new event is sent", again)
	}
}
