package consume_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// While an event is in flight, waiting or being posted, the server is informed: it redelivers nothing, however short AckWait
// is.
func TestEventsInFlightAreKeptAlive(t *testing.T) {
	t.Parallel()
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

func TestEventsInFlightAreKeptAliveWhileRedisIsUnavailable(t *testing.T) {
	s := newDurableStation(t)
	s.createConsumer(impatient)
	s.started()
	progress := s.countProgress()
	s.redis.Stop(t)
	s.publishMany("errors", 5)
	s.eventually("the events are in flight", func() bool { return s.consumerInfo().NumAckPending == 5 })
	s.eventually("each was reported in progress for longer than twice AckWait", func() bool { return progress() >= 5*9 })
	if n := s.consumerInfo().NumRedelivered; n > 0 {
		t.Errorf("%d events are redelivered, expected none", n)
	}
	s.redis.Restart(t)
	s.settled(5)
	s.expectEachPostedOnce(5)
}

// countProgress counts how often workers report to the server that a delivery is in progress: four times in AckWait.
func (s *station) countProgress() (count func() int64) {
	s.Helper()
	var reports atomic.Int64
	_, err := s.conn.Subscribe("$JS.ACK.>", func(message *nats.Msg) {
		if string(message.Data) == "+WPI" {
			reports.Add(1)
		}
	})
	kit.Check(s.T, err)
	kit.Check(s.T, s.conn.Flush())
	return reports.Load
}

// mostInFlight is the highest number of events that the worker holds, from now until Slack has got so many more requests.
func (r *replica) mostInFlight(requests int) int {
	s := r.s
	s.Helper()
	most, until := 0, s.slack.Requests()+requests
	s.eventually(fmt.Sprintf("Slack gets %d requests more", requests), func() bool {
		most = max(most, r.Holds())
		return s.slack.Requests() >= until
	})
	return most
}

// However much is waiting, a worker holds four batches at most while Slack is unavailable.
func TestAWorkerHoldsABoundedNumberOfEvents(t *testing.T) {
	s := newStation(t)
	s.createStream(nil)
	const events = 500
	s.publishMany("errors", events)
	s.slack.Always(devstack.Behaviour{Status: 503})
	r := s.started(func(c *setup) { c.batch, c.concurrency = 50, 16 })
	s.eventually("the worker has events", func() bool { return s.consumerInfo().NumAckPending >= 50 })
	if most := r.mostInFlight(3); most > 200 {
		t.Errorf("%d events were in flight, expected at most 200", most)
	}
	s.slack.Always(devstack.Behaviour{})
	s.settled(events)
	s.expectEachPostedOnce(events)
	s.expectNothingLeft()
}

// The bound holds over reconnections: what was requested on the lost connection is not delivered on top of what is requested
// on the new one.
func TestAWorkerHoldsABoundedNumberOfEventsAfterAReconnection(t *testing.T) {
	s := newStation(t)
	r := s.started(func(c *setup) { c.batch = 5 })
	for range 3 {
		kit.Check(t, r.connection.ForceReconnect())
		s.eventually("the worker asks again", func() bool { return len(r.Ready(t.Context())) == 0 })
	}
	s.eventually("its requests are pending", func() bool { return s.consumerInfo().NumWaiting > 0 })
	s.slack.Always(devstack.Behaviour{Delay: time.Second})
	s.publishMany("errors", 100)
	s.eventually("the worker is full", func() bool { return s.consumerInfo().NumAckPending >= 20 })
	if most := r.mostInFlight(8); most > 20 {
		t.Errorf("%d events were in flight, expected at most 20", most)
	}
	s.slack.Always(devstack.Behaviour{})
	s.settled(100)
	s.expectEachPostedOnce(100)
}

// A worker that is full leaves the rest to others.
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
