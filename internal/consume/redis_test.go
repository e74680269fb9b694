package consume_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// distant needs longer for a new connection than a readiness look may take.
type distant struct {
	consume.Limiter
	connected *atomic.Bool
}

func (d distant) Ready(ctx context.Context) error {
	if !d.connected.Load() {
		select {
		case <-time.After(1500 * time.Millisecond):
			d.connected.Store(true)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d.Limiter.Ready(ctx)
}

// An idle worker becomes ready with a distant Redis, as a ping goes on after the look that began it.
func TestIdleWorkerWithADistantRedis(t *testing.T) {
	s := newFixture(t)
	s.createStream(nil)
	r := s.start(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return distant{l, new(atomic.Bool)} }
	})
	r.expectReady()
}

// newDurableFixture uses a Redis that survives a kill without losing data.
func newDurableFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, func(t *testing.T) *redistest.Server {
		return redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always")
	})
}

// expectWaitingForRedis waits until the log and readiness report Redis as unavailable, and checks that the
// worker is alive.
func (r *replica) expectWaitingForRedis() {
	r.s.Helper()
	r.s.eventually("the worker reports that Redis is unavailable", func() bool {
		return len(r.s.log.waits("redis")) > 0 && strings.Contains(strings.Join(r.Ready(r.s.Context()), "\n"), "redis: ")
	})
	kit.Check(r.s.T, r.Live())
}

func TestWorkerWaitsForRedisAtStart(t *testing.T) {
	s := newDurableFixture(t)
	s.redis.Stop(t)
	s.createStream(nil)
	s.publishMany("errors", 5)
	r := s.start()
	r.expectWaitingForRedis()
	s.redis.Restart(t)
	s.settled(5)
	s.expectEachPostedOnce(5)
	if lines := s.log.waits("redis"); len(lines) != 1 {
		t.Errorf("%d lines report that Redis is unavailable, expected one", len(lines))
	}
}

func TestEventsWaitWhileRedisIsUnavailable(t *testing.T) {
	s := newDurableFixture(t)
	r := s.started(func(c *setup) { c.category = "10/30m" })
	s.publishMany("errors", 4)
	s.settled(4)
	s.redis.Stop(t)
	s.publishMany("deploys", 8)
	s.publishMany("errors", 8)
	r.expectWaitingForRedis()
	s.eventually("several attempts to decide have failed", func() bool { return r.redisErrors.Load() >= 3 })
	if n := len(s.log.settled()); n != 4 {
		t.Errorf("%d events are settled, expected none while Redis is unavailable", n-4)
	}
	if lines := s.log.waits("redis"); len(lines) != 1 {
		t.Errorf("%d lines report that Redis is unavailable, expected one", len(lines))
	}
	s.redis.Restart(t)
	lines := s.settled(20)
	s.expectOutcomes(map[string]int{"sent": 18, "dropped category": 2}, lines)
	s.expectCharged(18)
	s.expectNothingLeft()
	r.expectReady()
}

// The last call that met a Redis outage was a post, and the workspace has been paused since. Nothing else
// calls Redis, and fetching stops until a call succeeds, so the worker must probe Redis by itself.
func TestOutageEndsWithoutAnotherRequest(t *testing.T) {
	s := newFixture(t)
	s.createStream(nil)
	s.publish("errors", "one")
	s.publish("deploys", "two")
	noted := make(chan struct{})
	r := s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter {
			return latchingLimiter{Limiter: l, begun: new(atomic.Int64), noted: noted}
		}
	})
	s.eventually("Slack is paused", func() bool { return r.waitsFor("slack") != "" })
	close(noted)
	s.eventually("Redis is unavailable", func() bool { return r.waitsFor("redis") != "" })
	s.eventually("Redis is available again", func() bool { return r.waitsFor("redis") == "" })
	if reasons := r.Ready(t.Context()); len(reasons) > 0 {
		t.Errorf("not ready: %q", reasons)
	}
}

func TestAdmittedEventSurvivesRedisOutage(t *testing.T) {
	s := newDurableFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Next(devstack.Response{Delay: 500 * time.Millisecond}))
	s.publish("errors", "hello")
	s.eventually("the post is under way", func() bool { return s.slack.Requests() == 1 })
	s.redis.Stop(t)
	r.expectWaitingForRedis()
	if n := len(s.log.settled()); n != 0 {
		t.Error("the event is settled although it could not be recorded as sent")
	}
	s.redis.Restart(t)
	s.settled(1)
	s.expectEachPostedOnce(1)
	s.expectCharged(1)
	if sent := s.redis.Client(t).ZCard(t.Context(), "{"+namespace+"}:sent").Val(); sent < 1 {
		t.Error("the event is not recorded as sent")
	}
}

func TestOldRedisIsRefused(t *testing.T) {
	s := newFixture(t)
	old, err := server.NewServer("127.0.0.1:0")
	kit.Check(t, err)
	t.Cleanup(old.Close)
	kit.Check(t, old.Register("INFO", func(peer *server.Peer, _ string, _ []string) {
		peer.WriteBulk("redis_version:6.2.14\r\n")
	}))
	r := s.start(func(c *setup) { c.redisURL = "redis://" + old.Addr().String() + "/0" })
	if err := r.wait(); !errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), "6.2.14") {
		t.Errorf("Run returns %v, expected that version 6.2.14 is too old", err)
	}
}
