package consume_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// No replica posts before Retry-After has passed. Then each event is posted once.
func TestRateLimitPausesAllWorkers(t *testing.T) {
	s := newFixture(t)
	one := func(c *setup) { c.concurrency, c.batch = 1, 4 }
	s.started(one)
	s.started(one)
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	began := time.Now()
	s.publish("errors", "event that meets the 429")
	s.eventually("the pause is known to all", func() bool {
		return s.redis.Client(t).Exists(t.Context(), "{"+namespace+"}:pauses").Val() == 1
	})
	s.publishMany("errors", 30)
	s.settled(31)
	s.expectEachPostedOnce(31)
	for _, message := range s.slack.Messages() {
		if pause := message.Time.Sub(began); pause < time.Second {
			t.Errorf("%q was posted %s after the 429, expected none within a second", message.Text, pause)
		}
	}
	if requests := s.slack.Requests(); requests != 32 {
		t.Errorf("%d posts were tried, expected 31 and the one that met the 429", requests)
	}
	s.expectCharged(31)
}

func TestSlackOutageIsWaitedOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		trouble   devstack.Response
		ambiguous any
		searches  int // one before each further post
	}{
		"503":                 {devstack.Response{Status: 503}, true, 2},
		"service_unavailable": {devstack.Response{Status: 503, Code: "service_unavailable"}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.started(func(c *setup) { c.category = "1/30m" })
			s.slack.Respond(devstack.Next(test.trouble, test.trouble))
			s.publish("errors", "hello", "Nats-Msg-Id", "e1")
			s.expectLine("e1", line{"outcome": "sent", "attempts": 3.0, "ambiguous": test.ambiguous})
			searches, waits := s.slack.HistoryRequests(), s.log.waits("slack")
			if searches != test.searches || len(waits) != 1 {
				t.Errorf("%d searches and the lines %v, expected %d and one line", searches, waits, test.searches)
			}
			s.expectEachPostedOnce(1)
			s.expectNothingLeft()
		})
	}
}

// A refund would let a publisher of rejected messages post without limit.
func TestRejectedMessageKeepsItsSlot(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.category = "2/30m" })
	s.slack.Respond(devstack.Next(devstack.Response{Code: "invalid_blocks"}))
	s.publish("errors", "rejected", "Nats-Msg-Id", "rejected")
	s.expectLine("rejected", line{"reason": "slack_rejected", "detail": "invalid_blocks"})
	s.publish("errors", "takes the other slot")
	s.settled(2)
	s.publish("errors", "finds no slot")
	s.expectOutcomes(map[string]int{"dead slack_rejected": 1, "sent": 1, "dropped category": 1}, s.settled(3))
	s.expectCharged(2)
	if n := s.redis.Client(t).HLen(t.Context(), "{"+namespace+"}:inflight").Val(); n != 0 {
		t.Errorf("%d events are in flight, expected none", n)
	}
	s.expectNothingLeft()
}

// No attempt is made during a long pause, so no attempt would log it.
func TestLongPauseIsLoggedRepeatedly(t *testing.T) {
	s := newFixture(t)
	first, second := s.started(), s.started()
	first.RemindEvery(time.Millisecond) // at each check, once a second
	second.RemindEvery(time.Millisecond)
	s.slack.Respond(devstack.Always(devstack.Response{RetryAfter: "600"}))
	s.publishMany("errors", 200)
	s.eventually("the wait is logged long after the last attempt", func() bool {
		lines := s.log.waits("slack")
		last := len(lines) - 1
		return last >= 0 && lines[last]["waited_s"].(float64) > 2 && lines[last]["held"].(float64) > 0
	})
}

// A 429 proves that the post failed. It pauses the channel for other replicas, even if the worker is
// stopping and Slack named no time.
func TestRateLimitWithoutTimePausesOthers(t *testing.T) {
	s := newFixture(t)
	first := s.started(func(c *setup) { c.shutdown = 4 * time.Second })
	// A post begins at most two seconds after the stop.
	s.slack.Respond(devstack.Always(devstack.Response{Status: 429, Delay: 3 * time.Second}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.eventually("the post is under way", func() bool { return s.slack.Requests() == 1 })
	kit.Check(t, first.stop())
	ends := s.redis.Client(t).ZScore(t.Context(), "{"+namespace+"}:pauses", "C0DEFAULT").Val()
	if n := s.slack.Requests(); n != 1 || ends == 0 {
		t.Errorf("%d posts, and the channel's pause ends at %f; expected one, and that it has paused the channel",
			n, ends)
	}
}

// A reason to wait names no time that Slack did not name.
func TestRateLimitWithoutTimeIsSaid(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Always(devstack.Response{Status: 429}))
	s.publish("errors", "hello")
	const want = "Slack asked to wait and named no time"
	s.eventually("the reason of the wait", func() bool { return r.waitsFor("slack") == want })
	for range 3 { // later tries meet the same
		before := s.slack.Requests()
		s.eventually("another try", func() bool { return s.slack.Requests() > before })
		if reason := r.waitsFor("slack"); reason != want {
			t.Errorf("the worker waits because %q, expected %q", reason, want)
		}
	}
}

// The first post may have reached the channel before Slack began to refuse it, so the event keeps its slot.
func TestAmbiguousPostIsNotRefunded(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.category = "1/30m" })
	s.slack.Respond(devstack.First(
		unreadable,
		devstack.Next(devstack.Response{Accept: true, Reset: true}, devstack.Response{Code: "is_archived"}),
	))
	s.publish("errors", "perhaps", "Nats-Msg-Id", "perhaps")
	l := s.lineOf("perhaps")
	if l["reason"] != "slack_rejected" || l["ambiguous"] != true {
		t.Errorf("line %v, expected dead for slack_rejected, ambiguous", l)
	}
	s.publish("errors", "finds no slot", "Nats-Msg-Id", "after")
	if reason := s.lineOf("after")["reason"]; reason != "category" {
		t.Errorf("the next event has reason %v, expected category", reason)
	}
}

// A revoked token is not the fault of the events, so they are held rather than dead-lettered.
func TestRefusedCredentialsHoldEveryEvent(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.slack.Respond(devstack.Always(devstack.Response{Code: "invalid_auth"}))
	s.publishMany("errors", 20)
	s.eventually("the worker reports that it cannot send", func() bool {
		return strings.Contains(strings.Join(r.Ready(t.Context()), "\n"), "credentials: ")
	})
	kit.Check(t, r.Live())
	if lines := s.log.settled(); len(lines) > 0 {
		t.Errorf("%d events are settled, expected all to be held", len(lines))
	}
	s.slack.Respond(nil)
	s.expectOutcomes(map[string]int{"sent": 20}, s.settled(20))
	s.expectEachPostedOnce(20)
	r.expectReady()
	if letters := s.letters(); len(letters) > 0 {
		t.Errorf("%d dead letters, expected none", len(letters))
	}
}

// Another chat server behind the webhook shows each post and replies in its own words. The worker stops, says so,
// and goes on once Slack replies.
func TestForeignWebhookIsNotFloodedWithCopies(t *testing.T) {
	s := newFixture(t)
	r := s.started(webhook)
	s.slack.Respond(devstack.Always(devstack.Response{Body: `{"success":true}`, Accept: true}))
	s.publishMany("errors", 10)
	s.eventually("the worker reports that it cannot send", func() bool {
		reasons := strings.Join(r.Ready(t.Context()), "\n")
		return strings.Contains(reasons, "credentials: replies do not come from Slack: next try at ") &&
			strings.HasSuffix(reasons, "Z; 127.0.0.1 replied 200 with 16 bytes of JSON")
	})
	kit.Check(t, r.Live())
	if n := s.slack.Accepted(); n > 3 {
		t.Errorf("%d copies, expected 2 before the first pause", n)
	}
	s.slack.Respond(nil)
	s.expectOutcomes(map[string]int{"sent": 10}, s.settled(10))
	r.expectReady()
}

// A proxy that blocks a single event stops posting for a time. The next probe is one of the events that were
// published meanwhile, and its success ends the stop.
func TestOneBlockedEventDoesNotBlockLaterOnes(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(func(config *jetstream.ConsumerConfig) { config.MaxRequestExpires = time.Second })
	s.started()
	var blocked atomic.Int64
	s.slack.Respond(func(r devstack.Request) *devstack.Response {
		if !r.IsPost() || !strings.Contains(r.Message.Text, "blocked") {
			return nil
		}
		blocked.Add(1)
		return &devstack.Response{Body: "<html>blocked"}
	})
	s.publish("bad", "blocked")
	s.eventually("the worker stops and fetches nothing", func() bool {
		return blocked.Load() > 2 && s.consumerInfo().NumWaiting == 0
	})
	s.publish("good", "good")
	s.eventually("the later event is posted, or the blocked one is the probe again and again", func() bool {
		return s.slack.Accepted() > 0 || blocked.Load() > 6
	})
	if n := blocked.Load(); s.slack.Accepted() == 0 {
		t.Errorf("the blocked event was posted %d times, and the later one not at all", n)
	}
}

// A captive portal takes the place of the Web API.
func TestCaptivePortalHoldsEveryEvent(t *testing.T) {
	s := newFixture(t)
	r := s.started()
	s.slack.Respond(func(devstack.Request) *devstack.Response {
		return &devstack.Response{Body: "<html>Accept our terms", Header: map[string]string{"Content-Type": "text/html"}}
	})
	s.publishMany("errors", 10)
	s.eventually("the worker reports that it cannot send", func() bool {
		return strings.Contains(r.waitsFor("credentials"), "127.0.0.1 replied 200 with 22 bytes of HTML")
	})
	s.slack.Respond(nil)
	s.expectOutcomes(map[string]int{"sent": 10}, s.settled(10))
	s.expectEachPostedOnce(10)
	r.expectReady()
}
