package consume_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A Redis that refuses the script counts as unavailable. The log and readiness show the error of Redis.
func TestEventsWaitWhileRedisRefuses(t *testing.T) {
	t.Parallel()
	do := func(words ...any) func(*fixture, *redis.Client) {
		return func(s *fixture, client *redis.Client) { kit.Check(s.T, client.Do(s.Context(), words...).Err()) }
	}
	for _, test := range []struct {
		refusal     string // error code of Redis
		break_, fix func(*fixture, *redis.Client)
	}{
		{"OOM", do("config", "set", "maxmemory", "1"), do("config", "set", "maxmemory", "0")},
		{"NOREPLICAS", do("config", "set", "min-replicas-to-write", "1"), do("config", "set", "min-replicas-to-write", "0")},
		{"READONLY", do("replicaof", "127.0.0.1", "1"), do("replicaof", "no", "one")},
		{"NOPERM", do("acl", "setuser", "default", "-evalsha", "-eval"), do("acl", "setuser", "default", "+@all")},
	} {
		t.Run(test.refusal, func(t *testing.T) {
			s := newFixtureWith(t, func(t *testing.T) *redistest.Server {
				return redistest.StartProcess(t, "--enable-protected-configs", "yes")
			})
			r := s.started()
			client := s.redis.Client(t)
			test.break_(s, client)
			s.publish("errors", "hello")
			s.eventually("log and readiness show the refusal", func() bool {
				return len(s.log.waits("redis")) > 0 && strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), test.refusal)
			})
			test.fix(s, client)
			s.settled(1)
			s.expectEachPostedOnce(1)
			if n := s.charged(); n != 1 {
				t.Errorf("%d slots are taken, expected 1", n)
			}
			lines := s.log.waits("redis")
			if len(lines) != 1 || !strings.Contains(lines[0]["reason"].(string), test.refusal) {
				t.Errorf("lines about the wait: %v, expected one that contains %s", lines, test.refusal)
			}
		})
	}
}

// The held event is retried again and again. A Redis that still serves reads has not recovered.
func TestFullRedisIsLoggedOnce(t *testing.T) {
	s := newFixtureWith(t, func(t *testing.T) *redistest.Server { return redistest.StartProcess(t) })
	var asked atomic.Int64
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return countedCalls{l, &asked} }
	})
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503}))
	s.publish("errors", "hello")
	s.eventually("a post is tried", func() bool { return s.slack.Requests() > 0 })
	client := s.redis.Client(t)
	kit.Check(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	before := asked.Load()
	s.eventually("it is admitted again and again", func() bool { return asked.Load() >= before+3 })
	kit.Check(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.slack.Respond(nil)
	s.settled(1)
	if lines := s.log.waits("redis"); len(lines) != 1 {
		t.Errorf("lines about the wait: %v, expected one", lines)
	}
}

// Events are still decided after the clock jumps back.
func TestRedisClockSetBackIsLogged(t *testing.T) {
	s := newFixture(t)
	s.started()
	ahead := float64(time.Now().Add(10 * time.Minute).UnixMicro())
	clock := strconv.FormatInt(int64(ahead), 10)
	kit.Check(t, s.redis.Client(t).HSet(t.Context(), "{"+namespace+"}:meta", "clock", clock).Err())
	s.publishMany("errors", 3)
	s.settled(3)
	s.expectEachPostedOnce(3)
	if lines := s.log.waits("redis_clock"); len(lines) != 1 {
		t.Errorf("%d lines report that the clock was set back, expected one", len(lines))
	}
}
