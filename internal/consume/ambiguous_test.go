package consume_test

import (
	"testing"
	"time"

	"notifier/internal/devstack"
)

// quick makes the lease of a post short, and leaves Slack its time: a busy machine may need it.
func quick(c *setup) { c.lease, c.shutdown = 300*time.Millisecond, 0 }

func webhook(c *setup) { c.webhook = true }

// dieWhilePosting starts a worker that dies between Slack's acceptance of the event "e1" and the record of it.
func (s *station) dieWhilePosting(changes ...func(*setup)) {
	s.Helper()
	s.createConsumer(impatient)
	first := s.started(append([]func(*setup){quick, func(c *setup) { c.slackTimeout = time.Minute }}, changes...)...)
	s.slack.Next(devstack.Behaviour{Accept: true, Hang: true})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("Slack has it", func() bool { return s.slack.Accepted() == 1 })
	first.crash()
	if n := len(s.log.settled()); n != 0 {
		s.Fatalf("%d events were settled before the crash", n)
	}
}

// expectResumed checks the line of an event whose first post had an unknown end.
func (s *station) expectResumed(found bool) {
	s.Helper()
	l := s.lineOf("e1")
	if l["outcome"] != "sent" || l["ambiguous"] != true || l["redelivered"] != true || (l["found_in_channel"] == true) != found {
		s.Errorf("line %v, expected sent, ambiguous, redelivered and found %t", l, found)
	}
	if charged := s.charged(); charged != 1 {
		s.Errorf("%d slots are taken, expected 1", charged)
	}
	s.expectNothingLeft()
}

func TestAfterACrashWhilePostingTheLineIsAmbiguous(t *testing.T) {
	s := newStation(t)
	s.dieWhilePosting(webhook)
	s.started(quick, webhook)
	s.expectResumed(false)
	if s.posted()["hello"] != 2 {
		t.Errorf("posted %d times, expected what a webhook cannot help: 2", s.posted()["hello"])
	}
}

func TestAfterACrashWhilePostingTheChannelIsSearched(t *testing.T) {
	s := newStation(t)
	s.dieWhilePosting()
	s.started(quick)
	s.expectResumed(true)
	s.expectEachPostedOnce(1)
	if ts := s.lineOf("e1")["slack_ts"]; ts != s.slack.Messages()[0].TS {
		t.Errorf("slack_ts %v, expected that of the message in the channel", ts)
	}
	s.publish("errors", `{"id":"e1","text":"again"}`)
	s.eventually("the same id is a duplicate", func() bool { return tally(s.log.settled())["dropped duplicate"] == 1 })
}

// A channel that the settings name without its ID is searched once an answer to a post has shown the ID.
func TestAChannelThatHasANameIsSearched(t *testing.T) {
	s := newStation(t)
	s.started(func(c *setup) { c.channel = "#alerts" })
	s.publish("errors", "shows the channel's ID")
	s.settled(1)
	s.slack.Next(devstack.Behaviour{ResetAfter: true})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	if l := s.lineOf("e1"); l["found_in_channel"] != true || l["attempts"] != 1.0 {
		t.Errorf("line %v, expected that the message was found", l)
	}
	s.expectEachPostedOnce(2)
}

// A post that was refused before it was made, or whose end is known, makes no event ambiguous.
func TestAnEventWhosePostNeverBeganIsNotAmbiguous(t *testing.T) {
	s := newStation(t)
	s.createConsumer(impatient)
	first := s.started(quick, func(c *setup) { c.concurrency = 1 })
	s.slack.Next(devstack.Behaviour{RetryAfter: "1"})
	s.publish("errors", "meets the 429", "Nats-Msg-Id", "e0")
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("both are admitted", func() bool { return s.charged() == 2 && len(s.log.waits("slack")) == 1 })
	first.crash()
	s.started(quick)
	if l := s.lineOf("e1"); l["ambiguous"] != nil || l["attempts"] != 1.0 {
		t.Errorf("line %v, expected a first post that is not ambiguous", l)
	}
	s.settled(2)
	s.expectEachPostedOnce(2)
}

func TestAfterACutConnectionTheChannelIsSearched(t *testing.T) {
	s := newStation(t)
	s.started()
	s.slack.Next(devstack.Behaviour{ResetAfter: true}, devstack.Behaviour{ResetBefore: true})
	s.publish("errors", "arrived", "Nats-Msg-Id", "e1")
	if l := s.lineOf("e1"); l["found_in_channel"] != true || l["attempts"] != 1.0 {
		t.Errorf("line %v, expected to be found after one post", l)
	}
	s.publish("errors", "did not arrive", "Nats-Msg-Id", "e2")
	if l := s.lineOf("e2"); l["found_in_channel"] != nil || l["ambiguous"] != true || l["attempts"] != 2.0 {
		t.Errorf("line %v, expected a second post", l)
	}
	s.expectEachPostedOnce(2)
}

func TestWithoutTheScopeForHistoryOneLineIsLoggedAndTheEventPosted(t *testing.T) {
	s := newStation(t)
	s.slack.SetHistory(devstack.History{MissingScope: true})
	s.started()
	for _, id := range []string{"e1", "e2"} {
		s.slack.Next(devstack.Behaviour{ResetBefore: true})
		s.publish("errors", "hello", "Nats-Msg-Id", id)
		if l := s.lineOf(id); l["outcome"] != "sent" || l["ambiguous"] != true || l["attempts"] != 2.0 {
			t.Errorf("line %v, expected sent by a second post", l)
		}
	}
	if lines := s.log.named("cannot look"); len(lines) != 1 {
		t.Errorf("%d lines report that the history cannot be read, expected one", len(lines))
	}
}

// Reading a channel is limited by itself. It must not hold posts up.
func TestAHistoryThatIsLimitedForLongIsNotWaitedFor(t *testing.T) {
	s := newStation(t)
	s.slack.SetHistory(devstack.History{RetryAfter: "60"})
	s.started()
	s.slack.Next(devstack.Behaviour{ResetBefore: true})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	if l := s.lineOf("e1"); l["outcome"] != "sent" || l["attempts"] != 2.0 {
		t.Errorf("line %v, expected sent by a second post", l)
	}
}

// A replica that loses its connection while it posts still records the post. Another replica that has got the event waits
// for that, and does not post it as well.
func TestTwoReplicasThatHoldOneEventPostItOnce(t *testing.T) {
	s := newStation(t)
	s.createConsumer(impatient)
	lone := &journal{}
	first := s.started(func(c *setup) { c.log = lone })
	s.slack.Next(devstack.Behaviour{Accept: true, Delay: 2500 * time.Millisecond})
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

// When only reading fails, posting must not wait for it for ever.
func TestAHistoryThatFailsIsNotWaitedForForEver(t *testing.T) {
	s := newStation(t)
	failing := devstack.Behaviour{Status: 500}
	s.slack.NextHistory(failing, failing, failing, failing, failing, failing)
	s.started()
	s.slack.Next(devstack.Behaviour{ResetBefore: true})
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	if l := s.lineOf("e1"); l["outcome"] != "sent" || l["attempts"] != 2.0 {
		t.Errorf("line %v, expected sent by a second post", l)
	}
	if n := s.slack.HistoryRequests(); n != 4 {
		t.Errorf("the channel was searched %d times, expected 4", n)
	}
}

// After an outage in which neither posts nor looks went through, the channel is searched before the next post.
func TestAfterAnOutageTheChannelIsSearchedBeforeTheNextPost(t *testing.T) {
	s := newStation(t)
	failing := devstack.Behaviour{Status: 503}
	s.slack.NextHistory(failing, failing, failing, failing)
	s.started()
	s.slack.Next(devstack.Behaviour{ResetAfter: true}, failing)
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	if l := s.lineOf("e1"); l["outcome"] != "sent" || l["found_in_channel"] != true {
		t.Errorf("line %v, expected to be found", l)
	}
	s.expectEachPostedOnce(1)
}
