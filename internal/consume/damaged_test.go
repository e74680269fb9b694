package consume_test

import (
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/test/kit"
)

// put overwrites a key with a value of the wrong type.
func (s *fixture) put(key string) {
	s.Helper()
	kit.Check(s.T, s.redis.Client(s.T).Set(s.Context(), "{"+namespace+"}:"+key, "somebody else's", 0).Err())
}

func (s *fixture) remove(key string) {
	s.Helper()
	kit.Check(s.T, s.redis.Client(s.T).Del(s.Context(), "{"+namespace+"}:"+key).Err())
}

func TestDamagedPaceIsNamed(t *testing.T) {
	s := newFixture(t)
	r := s.started(func(c *setup) { c.pace = "100/10s" })
	s.put("pace:C0DEFAULT")
	s.publish("errors", "in the default channel")
	s.eventually("the key is named", func() bool {
		return strings.Contains(r.waitsFor("redis"), `"{test}:pace:C0DEFAULT"`)
	})
	s.publish("deploys", "in another one")
	s.remove("pace:C0DEFAULT")
	s.settled(2)
	s.expectEachPostedOnce(2)
}

// A key of the wrong type blocks every decision that needs it. Removing the key is enough to recover.
func TestDamagedKeyIsNamed(t *testing.T) {
	for _, key := range []string{"global", "category:errors", "inflight"} {
		t.Run(key, func(t *testing.T) {
			s := newFixture(t)
			r := s.started()
			s.put(key)
			s.publish("errors", "hello")
			named := `"{test}:` + key + `"`
			s.eventually("the key is named", func() bool {
				ready := strings.Join(r.Ready(t.Context()), "")
				return strings.Contains(r.waitsFor("redis"), named) && strings.Contains(ready, named)
			})
			s.remove(key)
			s.settled(1)
			s.expectEachPostedOnce(1)
		})
	}
}

// Otherwise Redis would shorten a pause that Slack requested.
func TestSlacksLongestWaitIsTheLongestPause(t *testing.T) {
	if slackout.MaxRetryAfter != ratelimit.LongestPause {
		t.Errorf("Slack may ask for %s, and a pause lasts %s at most",
			slackout.MaxRetryAfter, ratelimit.LongestPause)
	}
}

// Rejected events without a stored dead letter eventually fill the worker. It is not ready while full, and
// resumes once the stream accepts letters.
func TestWorkerFullOfLettersIsNotReady(t *testing.T) {
	s := newFixture(t)
	full := s.refuseLetters()
	r := s.started(func(c *setup) { c.batch = 2 })
	s.slack.Respond(devstack.Always(devstack.Response{Code: "no_text"}))
	s.publishMany("errors", 10)
	s.eventually("the worker is not ready", func() bool {
		reasons := strings.Join(r.Ready(t.Context()), "\n")
		return strings.Contains(reasons, "dead_letter: ") && strings.Contains(reasons, "no room is left")
	})
	s.slack.Respond(nil)
	full.MaxMsgs = 1000
	_, err := s.js.UpdateStream(t.Context(), full)
	kit.Check(t, err)
	s.settled(10)
	r.expectReady()
}
