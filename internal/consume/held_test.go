package consume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
)

// While an event is in hand, waiting or being posted, the server is told so: it hands it to nobody else, however
// short its patience is.
func TestEventsInHandAreKeptAlive(t *testing.T) {
	for name, trouble := range map[string]devstack.Behaviour{
		"cooling down": {RetryAfter: "3"}, "slow": {Delay: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStation(t)
			s.createConsumer(impatient)
			var redelivered []string
			s.started()
			s.started()
			s.slack.Next(trouble)
			began := time.Now()
			s.publishMany("errors", 5)
			s.eventually("all are settled", func() bool {
				if n := s.consumerInfo().NumRedelivered; n > 0 {
					redelivered = append(redelivered, fmt.Sprintf("%d after %s", n, time.Since(began)))
				}
				return len(s.log.settled()) == 5
			})
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("they are settled after %s, expected 3s at least", took)
			}
			if len(redelivered) > 0 {
				t.Errorf("redelivered: %v, expected none", redelivered)
			}
			s.expectEachPostedOnce(5)
			s.expectNothingLeft()
		})
	}
}

func TestEventsInHandAreKeptAliveWhileRedisIsAway(t *testing.T) {
	s := newDurableStation(t)
	s.createConsumer(impatient)
	s.started()
	s.redis.Stop(t)
	s.publishMany("errors", 5)
	s.eventually("the events are in hand", func() bool { return s.consumerInfo().NumAckPending == 5 })
	time.Sleep(2500 * time.Millisecond) // more than twice the server's patience
	if n := s.consumerInfo().NumRedelivered; n > 0 {
		t.Errorf("%d events are handed out again, expected none", n)
	}
	s.redis.Restart(t)
	s.settled(5)
	s.expectEachPostedOnce(5)
}

// mostInHand looks at how many events the server counts as handed out until the test says that it is enough.
func (s *station) mostInHand(enough func(now int) bool) int {
	s.Helper()
	most := 0
	s.eventually("the hands are full", func() bool {
		now := s.consumerInfo().NumAckPending
		most = max(most, now)
		return enough(now)
	})
	until := time.Now().Add(1500 * time.Millisecond)
	for time.Now().Before(until) {
		most = max(most, s.consumerInfo().NumAckPending)
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	return most
}

// However much is waiting, a worker holds four batches at most while Slack is away.
func TestAWorkerHoldsABoundedNumberOfEvents(t *testing.T) {
	s := newStation(t)
	s.createStream(nil)
	events := 5000
	if s.redis.Embedded { // which is slow
		events = 500
	}
	s.publishMany("errors", events)
	s.slack.Always(devstack.Behaviour{Status: 503})
	s.started(func(c *setup) { c.batch, c.concurrency = 50, 16 })
	if most := s.mostInHand(func(now int) bool { return now >= 50 }); most > 200 {
		t.Errorf("%d events were in hand, expected at most 200", most)
	}
	s.slack.Always(devstack.Behaviour{})
	s.settled(events)
	s.expectEachPostedOnce(events)
	s.expectNothingLeft()
}

// The bound holds over reconnections: what was asked for on the connection that was lost is not handed out on top of
// what is asked for on the new one.
func TestAWorkerHoldsABoundedNumberOfEventsAfterAReconnection(t *testing.T) {
	s := newStation(t)
	r := s.started(func(c *setup) { c.batch = 5 })
	for range 3 {
		check(t, r.connection.ForceReconnect())
		s.eventually("the worker asks again", func() bool { return len(r.Ready(t.Context())) == 0 })
	}
	s.eventually("its requests stand", func() bool { return s.consumerInfo().NumWaiting > 0 })
	s.slack.Always(devstack.Behaviour{Delay: 3 * time.Second})
	s.publishMany("errors", 100)
	if most := s.mostInHand(func(now int) bool { return now >= 20 }); most > 20 {
		t.Errorf("%d events were in hand, expected at most 20", most)
	}
	s.slack.Always(devstack.Behaviour{})
	s.settled(100)
	s.expectEachPostedOnce(100)
}

// A worker whose hand is full leaves the rest to others.
func TestAWorkerThatIsHeldUpDoesNotHoldUpAnother(t *testing.T) {
	s := newStation(t)
	s.createConsumer(func(config *jetstream.ConsumerConfig) { config.AckWait = 30 * time.Second })
	s.slack.Next(devstack.Behaviour{Delay: 3 * time.Second})
	s.started(func(c *setup) { c.batch, c.concurrency = 1, 1 })
	s.publish("errors", "slow")
	s.eventually("the first worker posts", func() bool { return s.slack.Requests() == 1 })
	s.started()
	s.publishMany("errors", 50)
	s.eventually("the second worker sends what the first has no room for", func() bool { return s.slack.Accepted() >= 45 })
	s.settled(51)
	s.expectEachPostedOnce(51)
}
