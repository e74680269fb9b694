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

// The post may have reached Slack, so a mute no longer applies.
func TestCrashWhilePostingIsAmbiguous(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*setup)
		posts  int
	}{
		"a webhook cannot search": {webhook, 2}, "found": {func(*setup) {}, 1},
		"muted meanwhile": {with(newMuteSwitch("errors")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.dieWhilePosting(func(c *setup) { c.webhook = test.posts > 1 })
			s.started(quick, test.change)
			found := map[int]any{1: true}[test.posts]
			s.expectLine("e1", line{
				"outcome": "sent", "ambiguous": true, "redelivered": true, "found_in_channel": found,
			})
			if n := s.posted()["hello"]; n != test.posts {
				t.Errorf("posted %d times, expected %d", n, test.posts)
			}
			s.expectCharged(1)
			s.expectNothingLeft()
		})
	}
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
func TestTwoWorkersPostASharedEventOnce(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	lone := &logLines{}
	first := s.started(func(c *setup) { c.log = lone })
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Delay: 2500 * time.Millisecond}))
	s.publish("errors", "hello")
	s.eventually("it is being posted", func() bool { return s.slack.Requests() == 1 })
	first.connection.Close()
	s.started()
	s.eventually("the other worker settles it", func() bool { return len(s.log.settled()) == 1 })
	if l := s.log.settled()[0]; l["reason"] != "duplicate" {
		t.Errorf("line %v, expected a duplicate", l)
	}
	s.expectEachPostedOnce(1)
}

// The post is repeated if the channel cannot be read, rather than waiting for the history.
func TestUnreadableChannelRepeatsThePost(t *testing.T) {
	s := newFixture(t)
	failing := slices.Repeat([]devstack.Response{{Status: 500}}, 6)
	s.slack.Respond(devstack.First(
		devstack.NextHistory(failing...), devstack.Next(devstack.Response{Reset: true}),
	))
	s.started()
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": true, "attempts": 2.0})
	if n := s.slack.HistoryRequests(); n != 4 {
		t.Errorf("the channel was searched %d times, expected 4", n)
	}
}

// After an outage of posts and history requests, the channel is searched before the next post. A search that
// fails for the whole workspace is the probe.
func TestChannelIsSearchedAfterAnOutage(t *testing.T) {
	s := newFixture(t)
	failing := devstack.Response{Status: 503}
	s.slack.Respond(devstack.First(
		devstack.NextHistory(devstack.Response{Code: "invalid_auth"}, failing, failing, failing),
		devstack.Next(devstack.Response{Accept: true, Reset: true}, failing),
	))
	r := s.started()
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "found_in_channel": true})
	s.expectEachPostedOnce(1)
	r.expectReady() // although nothing was posted since
}

// Without metadata no post is found again, which an operator learns from one line.
func TestRefusedMetadataIsLogged(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.slack.Respond(devstack.Next(devstack.Response{Code: "metadata_too_large"}))
	s.publishMany("errors", 3)
	s.settled(3)
	const said = "cannot look up ambiguous posts until a restart, because Slack refuses metadata"
	if lines := s.log.named(said); len(lines) != 1 || lines[0]["error"] != "slack: unavailable: metadata_too_large" {
		t.Errorf("%v, expected one line with the code", lines)
	}
	s.expectEachPostedOnce(3)
}
