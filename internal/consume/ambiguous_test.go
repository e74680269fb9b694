package consume_test

import (
	"slices"
	"testing"
	"time"

	"notifier/internal/devstack"
)

// quick shortens the lease of a post. The Slack timeout stays, because a busy machine may need it.
func quick(c *setup) { c.lease, c.shutdown = 300*time.Millisecond, 0 }

func webhook(c *setup) { c.webhook = true }

// unreadable refuses searches: the token lacks the scope.
var unreadable = devstack.AlwaysHistory(devstack.Response{Code: "missing_scope"})

// dieWhilePosting starts a worker that crashes after Slack accepted event "e1" and before Redis recorded
// the post.
func (s *fixture) dieWhilePosting(changes ...func(*setup)) {
	s.Helper()
	s.createConsumer(impatient)
	first := s.started(append([]func(*setup){quick, func(c *setup) { c.slackTimeout = time.Minute }}, changes...)...)
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Hang: true}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("Slack has it", func() bool { return s.slack.Accepted() == 1 })
	first.crash()
	if n := len(s.log.settled()); n != 0 {
		s.Fatalf("%d events were settled before the crash", n)
	}
}

// expectResumed checks the log line of an event if the result of the first post is unknown.
func (s *fixture) expectResumed(found bool) {
	s.Helper()
	l := s.lineOf("e1")
	resumed := l["outcome"] == "sent" && l["ambiguous"] == true && l["redelivered"] == true
	if !resumed || (l["found_in_channel"] == true) != found {
		s.Errorf("line %v, expected sent, ambiguous, redelivered and found %t", l, found)
	}
	s.expectCharged(1)
	s.expectNothingLeft()
}

func TestCrashWhilePostingIsAmbiguous(t *testing.T) {
	s := newFixture(t)
	s.dieWhilePosting(webhook)
	s.started(quick, webhook)
	s.expectResumed(false)
	if s.posted()["hello"] != 2 {
		t.Errorf("posted %d times, expected what a webhook cannot help: 2", s.posted()["hello"])
	}
}

func TestChannelIsSearchedAfterACrash(t *testing.T) {
	s := newFixture(t)
	s.dieWhilePosting()
	s.started(quick)
	s.expectResumed(true)
	s.expectEachPostedOnce(1)
	if ts := s.lineOf("e1")["slack_ts"]; ts != s.slack.Messages()[0].TS {
		t.Errorf("slack_ts %v, expected that of the message in the channel", ts)
	}
	s.publish("errors", `{"id":"e1","text":"again"}`)
	s.eventually("the same id is a duplicate", func() bool {
		return tally(s.log.settled())["dropped duplicate"] == 1
	})
}

// A channel configured by name can be searched once a post has returned its ID.
func TestChannelByNameIsSearched(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.channel = "#alerts" })
	s.publish("errors", "shows the channel's ID")
	s.settled(1)
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Reset: true}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"found_in_channel": true, "attempts": 1.0})
	s.expectEachPostedOnce(2)
}

func TestChannelIsSearchedAfterACutConnection(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Reset: true}, devstack.Response{Reset: true}))
	s.publish("errors", "arrived", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"found_in_channel": true, "attempts": 1.0})
	s.publish("errors", "did not arrive", "Nats-Msg-Id", "e2")
	s.expectLine("e2", line{"found_in_channel": nil, "ambiguous": true, "attempts": 2.0})
	s.expectEachPostedOnce(2)
}

// The first replica loses its NATS connection during a post but still records it. The second replica waits
// for that record and does not post again.
func TestTwoReplicasPostASharedEventOnce(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	lone := &logLines{}
	first := s.started(func(c *setup) { c.log = lone })
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Delay: 2500 * time.Millisecond}))
	s.publish("errors", "hello")
	s.eventually("it is being posted", func() bool { return s.slack.Requests() == 1 })
	s.started()
	first.connection.Close()
	s.eventually("the other replica settles it", func() bool { return len(s.log.settled()) == 1 })
	if l := s.log.settled()[0]; l["reason"] != "duplicate" {
		t.Errorf("line %v, expected a duplicate", l)
	}
	s.expectEachPostedOnce(1)
}

// The post is repeated if the channel cannot be read, rather than waiting for the history.
func TestUnreadableChannelRepeatsThePost(t *testing.T) {
	t.Parallel()
	failing := devstack.Response{Status: 500}
	for name, test := range map[string]struct {
		history  devstack.Hook
		searches int
	}{
		"without the scope": {unreadable, 1},
		"limited for long":  {devstack.AlwaysHistory(devstack.Response{RetryAfter: "60"}), 1},
		"failing":           {devstack.NextHistory(slices.Repeat([]devstack.Response{failing}, 6)...), 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.slack.Respond(devstack.First(test.history, devstack.Next(devstack.Response{Reset: true})))
			s.started()
			s.publish("errors", "hello", "Nats-Msg-Id", "e1")
			s.expectLine("e1", line{"outcome": "sent", "ambiguous": true, "attempts": 2.0})
			if n := s.slack.HistoryRequests(); n != test.searches {
				t.Errorf("the channel was searched %d times, expected %d", n, test.searches)
			}
		})
	}
}

// After an outage of posts and history requests, the channel is searched before the next post.
func TestChannelIsSearchedAfterAnOutage(t *testing.T) {
	s := newFixture(t)
	failing := devstack.Response{Status: 503}
	s.slack.Respond(devstack.First(
		devstack.NextHistory(failing, failing, failing, failing),
		devstack.Next(devstack.Response{Accept: true, Reset: true}, failing),
	))
	s.started()
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "found_in_channel": true})
	s.expectEachPostedOnce(1)
}
