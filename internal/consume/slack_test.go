package consume_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/test/kit"
)

// No replica posts before Retry-After has passed. Then each event is posted once.
func TestRateLimitPausesAllReplicas(t *testing.T) {
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
		searches  int
	}{
		"503":                 {devstack.Response{Status: 503}, true, 2},
		"service_unavailable": {devstack.Response{Status: 503, Code: "service_unavailable"}, nil, 0},
		"reset":               {devstack.Response{Reset: true}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.started(func(c *setup) { c.category = "1/30m" })
			s.slack.Respond(devstack.Next(test.trouble, test.trouble))
			s.publish("errors", "hello", "Nats-Msg-Id", "e1")
			s.expectLine("e1", line{"outcome": "sent", "attempts": 3.0, "ambiguous": test.ambiguous})
			if searches := s.slack.HistoryRequests(); searches != test.searches {
				t.Errorf("%d searches, expected %d: one before each further post", searches, test.searches)
			}
			s.expectEachPostedOnce(1)
			if waits := s.log.waits("slack"); len(waits) != 1 {
				t.Errorf("%d lines report that Slack is unavailable, expected one", len(waits))
			}
			s.expectNothingLeft()
		})
	}
}

// Slack stored the message before failing. The search finds it, so it is not posted twice.
func TestStoredMessageIsFoundAfterA500(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.slack.Respond(devstack.Next(devstack.Response{Status: 500, Accept: true}))
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": true, "found_in_channel": true, "attempts": 1.0})
	s.expectEachPostedOnce(1)
}

// A firewall that forgets all connections costs a post one timeout. The search and the retry use new
// connections, however many are idle.
func TestDeadConnectionsToSlackCostOneTimeout(t *testing.T) {
	s := newFixture(t)
	api, err := url.Parse(s.slack.APIURL())
	kit.Check(t, err)
	proxy := kit.StartFreezingProxy(t, api.Host)
	api.Host = proxy.Addr
	const timeout = 5 * time.Second
	s.started(func(c *setup) { c.slackURL, c.slackTimeout = api.String(), timeout })
	// Slow posts need several connections.
	s.slack.Respond(devstack.Always(devstack.Response{Delay: 200 * time.Millisecond}))
	s.publishMany("errors", 10)
	s.publishMany("deploys", 10)
	s.settled(20)
	s.slack.Respond(nil)
	if frozen := proxy.Freeze(); frozen < 2 {
		t.Fatalf("%d connections were open, expected one for each channel", frozen)
	}
	began := time.Now()
	s.publish("errors", "after the freeze", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"outcome": "sent", "ambiguous": true, "attempts": 2.0})
	if took := time.Since(began); took > 2*timeout {
		t.Errorf("sent %s after the freeze, expected at most %s", took, 2*timeout)
	}
	if waits := s.log.waits("slack"); len(waits) != 1 || waits[0]["reason"] != "slack: ambiguous: timeout" {
		t.Errorf("%v, expected one line that names the timeout", waits)
	}
}

func TestRefusedChannelIsRefunded(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.category = "1/30m" })
	s.slack.Respond(devstack.Next(devstack.Response{Code: "is_archived"}))
	s.publish("errors", "refused", "Nats-Msg-Id", "refused")
	s.lineOf("refused")
	letter := s.letter("refused")
	if string(letter.Data) != "refused" || letter.Header.Get("Notifier-Detail") != "is_archived" {
		t.Errorf("the dead letter is %q with the headers %v", letter.Data, letter.Header)
	}
	s.publish("errors", "fits in its place")
	s.expectOutcomes(map[string]int{"dead slack_rejected": 1, "sent": 1}, s.settled(2))
}

// A refund would let a publisher of rejected messages post without limit.
func TestRejectedMessageKeepsItsSlot(t *testing.T) {
	for _, code := range []string{"invalid_blocks", "a_code_of_tomorrow"} {
		t.Run(code, func(t *testing.T) {
			s := newFixture(t)
			s.started(func(c *setup) { c.category = "2/30m" })
			s.slack.Respond(devstack.Next(devstack.Response{Code: code}))
			s.publish("errors", "rejected", "Nats-Msg-Id", "rejected")
			s.expectLine("rejected", line{"reason": "slack_rejected", "detail": code})
			s.publish("errors", "takes the other slot")
			s.settled(2)
			s.publish("errors", "finds no slot")
			s.expectOutcomes(map[string]int{"dead slack_rejected": 1, "sent": 1, "dropped category": 1}, s.settled(3))
			s.expectCharged(2)
			if n := s.redis.Client(t).HLen(t.Context(), "{"+namespace+"}:inflight").Val(); n != 0 {
				t.Errorf("%d events are in flight, expected none", n)
			}
			s.expectNothingLeft()
		})
	}
}

func TestAmbiguousPostIsRetried(t *testing.T) {
	s := newFixture(t)
	s.started(webhook, func(c *setup) { c.category = "1/30m" })
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Reset: true}))
	s.publish("errors", "hello", "Nats-Msg-Id", "doubtful")
	l := s.lineOf("doubtful")
	if l["outcome"] != "sent" || l["ambiguous"] != true || l["attempts"] != 2.0 {
		t.Errorf("line %v, expected sent at the second attempt, ambiguous", l)
	}
	if posted, charged := s.posted()["hello"], s.charged(); posted != 2 || charged != 1 {
		t.Errorf("%d posts and %d slots, expected 2 and 1", posted, charged)
	}
}

// One replica probes on behalf of all, so each Retry-After costs Slack one request.
func TestOneReplicaProbesAfterAPause(t *testing.T) {
	s := newFixture(t)
	four := func(c *setup) { c.concurrency = 4 }
	for range 3 {
		s.started(four)
	}
	s.slack.Respond(devstack.Always(devstack.Response{RetryAfter: "1"}))
	s.publishMany("errors", 60)
	client := s.redis.Client(t)
	// quiet samples the state and reports whether no post was under way: a pause was active, and no request
	// came meanwhile.
	quiet := func() (requests int, ends time.Time, is bool) {
		requests = s.slack.Requests()
		ends = time.UnixMicro(int64(client.ZScore(t.Context(), "{"+namespace+"}:pauses", "C0DEFAULT").Val()))
		return requests, ends, ends.After(time.Now()) && s.slack.Requests() == requests
	}
	first, begun, is := 0, time.Time{}, false
	s.eventually("a pause is on", func() bool {
		_, begun, is = quiet()
		return is
	})
	from := begun
	s.eventually("whatever was in flight when the pause began has been answered", func() bool {
		first, from, is = quiet()
		return is && from.Sub(begun) >= 2*time.Second
	})
	last, to := first, from
	s.eventually("three probes more have been refused", func() bool {
		last, to, is = quiet()
		return is && to.Sub(from) >= 3*time.Second
	})
	if n := last - first; n > int(to.Sub(from)/time.Second) {
		t.Errorf("%d requests in %s of pauses of a second, expected one for each", n, to.Sub(from))
	}
	s.slack.Respond(nil)
	s.settled(60)
	s.expectEachPostedOnce(60)
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

func TestRateLimitWithoutTimeBacksOff(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.slack.Respond(devstack.Next(devstack.Response{Status: 429}, devstack.Response{Status: 429}))
	began := time.Now()
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	s.expectLine("e1", line{"attempts": 3.0})
	if took := time.Since(began); took < 2*consume.FirstBackoff()*7/10 {
		t.Errorf("sent after %s, expected two backoffs, the first of %s give or take 30 %%",
			took, consume.FirstBackoff())
	}
}

// A 429 proves that the post failed. It pauses the channel for other replicas, even if the worker is
// stopping and Slack named no time.
func TestRateLimitWithoutTimePausesOthers(t *testing.T) {
	for name, header := range map[string]string{"no header": "", "not a time": "soon"} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			first := s.started(func(c *setup) { c.shutdown = 4 * time.Second })
			// A post begins at most two seconds after the stop.
			limited := devstack.Response{Status: 429, RetryAfter: header, Delay: 3 * time.Second}
			s.slack.Respond(devstack.Always(limited))
			s.publish("errors", "hello", "Nats-Msg-Id", "e1")
			s.eventually("the post is under way", func() bool { return s.slack.Requests() == 1 })
			kit.Check(t, first.stop())
			ends := s.redis.Client(t).ZScore(t.Context(), "{"+namespace+"}:pauses", "C0DEFAULT").Val()
			if n := s.slack.Requests(); n != 1 || ends == 0 {
				t.Errorf("%d posts, and the channel's pause ends at %f; expected one, and that it has paused the channel",
					n, ends)
			}
		})
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
