package consume_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// failures lists results of a post that rule out a message in the channel.
var failures = map[string]struct {
	behaviour devstack.Response
	waitsFor  string
	refused   bool // no connection is made
}{
	"service_unavailable": {devstack.Response{Status: 503, Code: "service_unavailable"}, "slack", false},
	"429":                 {devstack.Response{RetryAfter: "1"}, "slack", false},
	"refused connection":  {devstack.Response{}, "slack", true},
	"token_revoked":       {devstack.Response{Code: "token_revoked"}, "credentials", false},
}

// leasedForLong makes a test time out if it waits for the lease of another worker's post.
func leasedForLong(c *setup) { c.lease = time.Hour }

// failPosts fails all posts of event "e1" until handOver has ended the first worker. After that Slack
// accepts posts.
func (s *fixture) failPosts(kind string, handOver func(*replica)) {
	s.Helper()
	failure := failures[kind]
	s.createConsumer(impatient)
	s.slack.Respond(devstack.Always(failure.behaviour))
	first := s.started(leasedForLong, func(c *setup) {
		if failure.refused {
			c.slackURL = "http://" + kit.FreeAddr(s.T) + "/api/"
		}
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("its post has failed", func() bool { return first.waitsFor(failure.waitsFor) != "" })
	handOver(first)
	if n := len(s.log.settled()); n != 0 {
		s.Fatalf("%d events were settled by the first worker", n)
	}
	s.slack.Respond(nil)
}

// The event is certainly not in the channel. The next worker posts it at once, or refunds it if it may not be
// posted any more.
func TestFailedPostIsKnownToTheNextWorker(t *testing.T) {
	t.Parallel()
	stopped := func(r *replica) { _ = r.stop() }
	none := func(*setup) {}
	for kind := range failures {
		for name, test := range map[string]struct {
			handOver func(*replica)
			second   func(*setup)
			reason   any // of the drop; nil if the event is sent
		}{
			"stop":    {stopped, none, nil},
			"crash":   {(*replica).crash, none, nil},
			"muted":   {(*replica).crash, with(newMuteSwitch("errors")), "muted"},
			"expired": {(*replica).crash, func(c *setup) { c.maxAge = time.Millisecond }, "expired"},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				s := newFixture(t)
				s.failPosts(kind, test.handOver)
				s.started(leasedForLong, test.second)
				s.expectLine("e1", line{"reason": test.reason, "ambiguous": nil, "redelivered": true})
				if n := s.slack.HistoryRequests(); n != 0 {
					t.Errorf("the channel was searched %d times, expected never", n)
				}
				posts := 0
				if test.reason == nil {
					posts = 1
					if n, ok := s.lineOf("e1")["attempts"].(float64); !ok || n < 2 {
						t.Errorf("%v attempts, expected the first worker's too", n)
					}
				}
				s.expectEachPostedOnce(posts)
				s.expectCharged(posts)
				s.expectNothingLeft()
			})
		}
	}
}

// A later failure does not prove that an earlier ambiguous post failed.
func TestFailureAfterAnAmbiguousPostLeavesItAmbiguous(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	first := s.started(quick, func(c *setup) { c.shutdown = 5 * time.Second })
	s.slack.Respond(devstack.First(
		unreadable,
		devstack.Next(devstack.Response{Accept: true, Reset: true}),
		devstack.Always(devstack.Response{Status: 503, Code: "service_unavailable"}),
	))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("a later post has failed", func() bool { return s.slack.Requests() >= 2 })
	first.crash()
	s.slack.Respond(unreadable)
	s.started(quick, with(newMuteSwitch("errors")))
	s.expectLine("e1", line{"outcome": "dropped", "reason": "muted", "ambiguous": true})
	s.expectCharged(1) // the mute has not refunded it
}

// unrecorded is a limiter that cannot record the result of a post, as during a Redis outage.
type unrecorded struct{ consume.Limiter }

func (unrecorded) Answered(context.Context, ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error) {
	return ratelimit.NoPause, 0, errors.New("redis: away")
}

func TestUnrecordedFailureIsAmbiguous(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	first := s.started(quick, func(c *setup) {
		c.shutdown = 5 * time.Second
		c.limiter = func(l consume.Limiter) consume.Limiter { return unrecorded{l} }
	})
	s.slack.Respond(devstack.Always(devstack.Response{Status: 503, Code: "service_unavailable"}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("its post has failed", func() bool { return first.waitsFor("slack") != "" })
	first.crash()
	s.slack.Respond(nil)
	s.started(quick)
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": true})
	s.expectEachPostedOnce(1)
}

// recordedFirst counts posts reported to the pace before the event was recorded as sent.
type recordedFirst struct {
	consume.Limiter
	request ratelimit.Request
	before  *atomic.Int32
}

func (l recordedFirst) Answered(
	ctx context.Context, answer ratelimit.Answer,
) (ratelimit.PauseScope, time.Duration, error) {
	sent, err := l.WasSent(ctx, l.request)
	if answer.Posted && (err != nil || !sent) {
		l.before.Add(1)
	}
	return l.Limiter.Answered(ctx, answer)
}

// A crash between Slack's acceptance and its record causes a second post. Recording the post first keeps
// that window short.
func TestSentIsRecordedBeforeThePace(t *testing.T) {
	s := newFixture(t)
	var before atomic.Int32
	request := ratelimit.Request{ID: "e1", Category: "errors", Cost: 1}
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return recordedFirst{l, request, &before} }
	})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent"})
	if before.Load() != 0 {
		t.Error("the pace was told of the post before it was recorded")
	}
}
