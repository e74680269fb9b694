package consume_test

import (
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	s := newFixture(t)
	s.createStream(nil)
	s.publishMany("errors", 400)
	s.slack.Respond(devstack.Always(devstack.Response{Delay: 5 * time.Millisecond}))
	first := s.start(func(c *setup) { c.batch, c.shutdown = 16, 10*time.Second })
	s.eventually("some are sent", func() bool { return s.slack.Accepted() >= 30 })
	began := time.Now()
	kit.Check(t, first.stop())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Run took %s to return, expected at most ShutdownTimeout", took)
	}
	if ready := first.Ready(t.Context()); len(ready) == 0 {
		t.Error("a worker that has stopped reports that it is ready")
	}
	done := len(s.log.settled())
	if done == 400 {
		t.Fatal("the worker has taken everything, so the test shows nothing")
	}
	// Events that the server was about to deliver at the stop stay pending until AckWait. The worker cannot
	// return them.
	s.eventually("what it has settled is acknowledged, and nothing else", func() bool {
		return int(s.streamInfo(streamName).State.Msgs) == 400-done
	})
	s.start()
	s.settled(400)
	s.expectEachPostedOnce(400)
	s.expectNothingLeft()
}

// The worker leaves unsettled events to other replicas. Run still returns in time and no event is posted
// twice.
func TestShutdownEndsInTimeDuringAnOutage(t *testing.T) {
	t.Parallel()
	const timeout = 700 * time.Millisecond
	inTime := func(t *testing.T, r *replica) {
		t.Helper()
		began := time.Now()
		kit.Check(t, r.stop())
		if took := r.returned.Sub(began); took > timeout+10*time.Second {
			t.Errorf("Run took %s to return, expected about %s", took, timeout)
		}
	}
	t.Run("Slack", func(t *testing.T) {
		s := newFixture(t)
		r := s.started(func(c *setup) { c.shutdown, c.concurrency = timeout, 1 })
		s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "60"}))
		s.publishMany("errors", 20)
		s.eventually("all are held", func() bool {
			return s.charged() == 20 && len(s.log.waits("slack")) == 1
		})
		inTime(t, r)
		kit.Check(t, s.redis.Client(t).Del(t.Context(), "{"+namespace+"}:pauses").Err())
		began := time.Now()
		s.start()
		s.settled(20)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("settled after %s, expected well within AckWait: the first worker returned its events", took)
		}
		s.expectEachPostedOnce(20)
		s.expectCharged(20)
	})
	t.Run("Redis", func(t *testing.T) {
		s := newDurableFixture(t)
		r := s.started(func(c *setup) { c.shutdown = timeout })
		s.redis.Stop(t)
		s.publishMany("errors", 20)
		s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 20 })
		inTime(t, r)
		s.redis.Restart(t)
		s.start()
		s.settled(20)
		s.expectEachPostedOnce(20)
	})
	t.Run("NATS", func(t *testing.T) {
		s := newFixture(t)
		r := s.started(func(c *setup) { c.shutdown = timeout })
		s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
		s.publishMany("errors", 5)
		s.eventually("all are in flight", func() bool { return s.consumerInfo().NumAckPending == 5 })
		s.nats.Stop()
		inTime(t, r)
	})
}

// A post cut off by the shutdown may have reached Slack and would be repeated. So no post begins that might
// not finish in time.
func TestShutdownCutsOffNoPost(t *testing.T) {
	s := newFixture(t)
	// A post begins at most two seconds after the stop. The first post takes longer, unless the
	// stop is late by 1.5 s.
	s.slack.Respond(devstack.Always(devstack.Response{Delay: 3500 * time.Millisecond}))
	first := s.started(func(c *setup) { c.shutdown, c.concurrency = 4*time.Second, 1 })
	s.publishMany("errors", 2)
	s.eventually("both are in flight, and a post is under way", func() bool {
		return s.charged() == 2 && s.slack.Requests() == 1
	})
	kit.Check(t, first.stop())
	if n := s.slack.Requests(); n != 1 {
		t.Errorf("%d posts have begun, expected the first alone: the second could not have ended in time", n)
	}
	s.slack.Respond(nil)
	s.start()
	s.settled(2)
	s.expectEachPostedOnce(2)
}

// The event is settled even if Redis cannot record the post before the worker must end.
func TestPostedEventIsNotReturned(t *testing.T) {
	s := newDurableFixture(t)
	first := s.started(func(c *setup) { c.shutdown = time.Second })
	s.slack.Respond(devstack.Next(devstack.Response{Delay: 500 * time.Millisecond}))
	s.publish("errors", "hello")
	s.eventually("the post is under way", func() bool { return s.slack.Requests() == 1 })
	s.redis.Stop(t)
	s.eventually("it is in Slack", func() bool { return s.slack.Accepted() == 1 })
	kit.Check(t, first.stop())
	s.redis.Restart(t)
	s.started()
	s.expectNothingLeft()
	s.settled(1)
	s.expectEachPostedOnce(1)
}
