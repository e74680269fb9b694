package consume_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/consume/decide"
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

// TestLostPermitReplyAfterTheLease: another worker may know the name of the post by now, so this one takes another
// name. It made no post, so it searches for none, and nothing is ambiguous.
func TestLostPermitReplyAfterTheLease(t *testing.T) {
	s := newFixture(t)
	var lost atomic.Int64
	s.started(quick, func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter {
			return faultyBegin{Limiter: l, after: func(ratelimit.Request) error {
				if lost.Add(1) > 1 {
					return nil
				}
				time.Sleep(c.lease + time.Second) // more than the lease
				return errors.New("the answer is lost")
			}}
		}
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": nil})
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

// unavailable fails Admit while it is set, and counts the other calls.
type unavailable struct {
	consume.Limiter
	set      *atomic.Bool
	admitted *atomic.Int64
}

func (u unavailable) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	if u.set.Load() {
		return nil, errors.New("redis: i/o timeout")
	}
	u.admitted.Add(1)
	return u.Limiter.Admit(ctx, batch)
}

// An event that expires during an outage of Redis is not charged afterwards: newer ones need the slots.
func TestEventThatExpiredDuringAnOutageIsNotDecided(t *testing.T) {
	s := newFixture(t)
	limiter := unavailable{set: new(atomic.Bool), admitted: new(atomic.Int64)}
	limiter.set.Store(true)
	s.started(func(c *setup) {
		c.maxAge = time.Second
		c.limiter = func(l consume.Limiter) consume.Limiter {
			limiter.Limiter = l
			return limiter
		}
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	published := time.Now()
	s.eventually("the event is too old", func() bool { return time.Since(published) > 1100*time.Millisecond })
	limiter.set.Store(false)
	s.expectLine("e1", line{"outcome": "dropped", "reason": "expired"})
	if n := limiter.admitted.Load(); n != 0 {
		t.Errorf("the script decided %d times, expected never", n)
	}
}

// frozen delays the reply of the first permit until it is too old, as if the process had been suspended. It
// records the posts.
type frozen struct {
	consume.Limiter
	posts chan ratelimit.Post
}

func (f frozen) Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error) {
	permit, err := f.Limiter.Begin(ctx, post)
	if f.posts <- post; len(f.posts) == 1 {
		time.Sleep(decide.Fresh + 50*time.Millisecond)
	}
	return permit, err
}

// A worker that was suspended after a permit begins another post: its lease may be over, and another worker
// may have searched for the first one.
func TestOldPermitIsNotUsed(t *testing.T) {
	s := newFixture(t)
	posts := make(chan ratelimit.Post, 8)
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return frozen{l, posts} }
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": nil})
	s.expectEachPostedOnce(1)
	first, second := <-posts, <-posts
	if len(posts) > 0 || second.Name == first.Name || second.Known != first.Name {
		t.Errorf("posts %+v and %+v, expected a second one that knows the first", first, second)
	}
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
