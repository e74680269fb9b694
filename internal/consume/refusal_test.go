package consume_test

import (
	"strings"
	"testing"
	"time"

	"notifier/test/kit"
	"notifier/test/redistest"
)

// A Redis that refuses the script counts as unavailable, as one without its replicas does. The log and
// readiness show the error of Redis.
func TestEventsWaitWhileRedisRefuses(t *testing.T) {
	s := newFixtureWith(t, func(t *testing.T) *redistest.Server { return redistest.StartProcess(t) })
	r := s.started()
	client := s.redis.Client(t)
	const setting, refusal = "min-replicas-to-write", "NOREPLICAS"
	kit.Check(t, client.ConfigSet(t.Context(), setting, "1").Err())
	s.publish("errors", "hello")
	s.eventually("log and readiness show the refusal", func() bool {
		return len(s.log.waits("redis")) > 0 && strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), refusal)
	})
	kit.Check(t, client.ConfigSet(t.Context(), setting, "0").Err())
	s.settled(1)
	s.expectEachPostedOnce(1)
	s.expectCharged(1)
	lines := s.log.waits("redis")
	if len(lines) != 1 || !strings.Contains(lines[0]["reason"].(string), refusal) {
		t.Errorf("lines about the wait: %v, expected one that contains %s", lines, refusal)
	}
}

// Events are still decided after the clock jumps back. Readiness notices it without an event, and its end.
func TestRedisClockSetBackIsReported(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	meta, clock := "{"+namespace+"}:meta", time.Now().Add(20*time.Hour).UnixMicro()
	kit.Check(t, s.redis.Client(t).HSet(t.Context(), meta, "clock", clock).Err())
	s.eventually("it is reported", func() bool {
		ready := r.Ready(t.Context())
		return len(ready) == 0 && strings.Contains(r.waitsFor("redis_clock"), "behind the newest admission")
	})
	s.publishMany("errors", 3)
	s.settled(3)
	s.expectEachPostedOnce(3)
	if lines := s.log.waits("redis_clock"); len(lines) != 1 {
		t.Errorf("%d lines report that the clock was set back, expected one", len(lines))
	}
	kit.Check(t, s.redis.Client(t).HDel(t.Context(), meta, "clock").Err())
	s.eventually("it is over", func() bool { return len(r.Ready(t.Context())) == 0 && r.waitsFor("redis_clock") == "" })
}
