package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
)

// faultyBegin fails Begin before the call, or after it as if the reply was lost.
type faultyBegin struct {
	consume.Limiter
	before, after func(request ratelimit.Request) error
}

func (l faultyBegin) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	if l.before != nil {
		if err := l.before(post.Request); err != nil {
			return ratelimit.Permit{}, err
		}
	}
	permit, err := l.Limiter.Begin(ctx, post)
	if err == nil && l.after != nil {
		if err = l.after(post.Request); err != nil {
			return ratelimit.Permit{}, err
		}
	}
	return permit, err
}

// The worker repeats the request with the same attempt name. Redis returns the recorded post as the
// worker's own, so nothing is ambiguous.
func TestLostPermitReplyIsNotAmbiguous(t *testing.T) {
	s := newFixture(t)
	var lost atomic.Int64
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter {
			return faultyBegin{Limiter: l, after: func(ratelimit.Request) error {
				if lost.Add(1) <= 2 {
					return errors.New("the answer is lost")
				}
				return nil
			}}
		}
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": nil, "attempts": 1.0})
	s.expectEachPostedOnce(1)
}

// While the workspace is paused, events are left to replicas that can send, even if this worker has room.
func TestNothingIsPulledWhileTheGateIsClosed(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.batch, c.category = 5, "1/30m" })
	s.slack.Respond(devstack.Always(devstack.Response{RetryAfter: "600"}))
	s.publish("errors", "held")
	s.publish("deploys", "held in another channel")
	s.eventually("Slack has asked all to wait", func() bool {
		return slices.ContainsFunc(r.Snapshot().Waits, func(wait snapshot.Wait) bool {
			return wait.For == "slack" && wait.Channel == ""
		})
	})
	s.publishMany("errors", 200)
	inARow := 0
	s.eventually("what was requested before is settled, and nothing more is requested", func() bool {
		info := s.consumerInfo()
		if info.NumWaiting == 0 && info.NumAckPending == 2 && info.NumPending > 0 {
			inARow++
		} else {
			inARow = 0
		}
		return inARow == 20
	})
}

// Each query would fail for the same reason, so waiting events do not query Redis one by one.
func TestFailingRedisIsNotQueriedByEachEvent(t *testing.T) {
	s := newFixture(t)
	var failing atomic.Bool
	var asked atomic.Int64
	failing.Store(true)
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter {
			return faultyBegin{Limiter: l, before: func(ratelimit.Request) error {
				if failing.Load() {
					asked.Add(1)
					return errors.New("no answer")
				}
				return nil
			}}
		}
	})
	began := time.Now()
	s.publishMany("errors", 60)
	s.eventually("several rounds have failed", func() bool { return asked.Load() > 8 })
	rounds := int64(time.Since(began)/(consume.RetryPause()/2)) + 1
	if n := asked.Load(); n > rounds*8 {
		t.Errorf("Redis was asked %d times, expected at most 8 at once, %d times", n, rounds)
	}
	failing.Store(false)
	s.settled(60)
}

// Once the last held event is dropped, no post remains that could detect the recovery of the channel.
func TestChannelWaitEndsWithItsLastEvent(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.maxAge = time.Second })
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publish("errors", "too old soon")
	s.eventually("the channel is waited for", func() bool { return len(r.Snapshot().Waits) > 0 })
	s.settled(1)
	s.eventually("nothing is waited for", func() bool { return len(r.Snapshot().Waits) == 0 })
}
