package consume_test

import (
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// lineOf waits for the line of an event and checks that there is only one.
func (s *fixture) lineOf(id string) line {
	s.Helper()
	var found []line
	s.eventually("event "+id+" is settled", func() bool {
		found = nil
		for _, l := range s.log.settled() {
			if l["event_id"] == id {
				found = append(found, l)
			}
		}
		return len(found) > 0
	})
	if len(found) > 1 {
		s.Errorf("event %s has %d lines, expected 1", id, len(found))
	}
	return found[0]
}

func TestSentEventLine(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	got := maps.Clone(s.lineOf("e1"))
	if latency, ok := got["latency_ms"].(float64); !ok || latency < 0 {
		t.Errorf("latency_ms is %v", got["latency_ms"])
	}
	delete(got, "ts")
	delete(got, "latency_ms")
	want := line{
		"level": "info", "msg": "notification sent", "outcome": "sent",
		"event_id": "e1", "category": "errors", "subject": "notify.errors", "stream_seq": 1.0,
		"channel": "C0DEFAULT", "slack_ts": s.slack.Messages()[0].TS, "attempts": 1.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDroppedEventLines(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.category, c.maxAge = "1/30m+5/1h", time.Hour })
	s.publish("errors", `{"id":"first","text":"x"}`)
	s.lineOf("first")
	s.publish("errors", "x", "Nats-Msg-Id", "by-category")
	s.expectLine("by-category", line{
		"level": "info", "msg": "notification dropped", "outcome": "dropped", "reason": "category",
		"limit": "1/30m", "channel": nil, "attempts": nil,
	})
	if wait, _ := s.lineOf("by-category")["retry_after_s"].(float64); wait < 1700 || wait > 1800 {
		t.Errorf("retry_after_s is %v, expected just below half an hour", wait)
	}
	s.publish("errors", `{"id":"old","text":"x","time":"2020-01-01T00:00:00Z"}`)
	s.expectLine("old", line{"reason": "expired", "max_age_s": 3600.0, "limit": nil})
	if age, _ := s.lineOf("old")["age_s"].(float64); age < 3600 {
		t.Errorf("age_s is %v", age)
	}
	s.publish("errors", `{"id":"first","text":"x"}`)
	s.expectOutcomes(map[string]int{
		"sent": 1, "dropped category": 1, "dropped expired": 1, "dropped duplicate": 1,
	}, s.settled(4))
	s.expectCharged(1)
}

// A refusal names the group limit or the reserve. Lines name the group only if the group has a limit.
func TestGroupAndReserveLines(t *testing.T) {
	s := newFixture(t)
	refusals := map[string]ratelimit.Decision{
		"by-group": {Verdict: ratelimit.Group, Tier: s.limit("50/30m")[0], RetryAfter: 1118 * time.Millisecond},
		"reserved": {
			Verdict: ratelimit.Global, Tier: s.limit("1000/24h:15m")[0], Reserved: 10, AtLeast: true,
			RetryAfter: 604_800_000_001 * time.Microsecond,
		},
	}
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return refusingLimiter{l, refusals} }
		c.group = func(category string) string { return map[string]string{"team-a.job1": "team-a"}[category] }
	})
	s.publish("team-a.job1", "x", "Nats-Msg-Id", "by-group")
	s.publish("errors", "x", "Nats-Msg-Id", "reserved")
	s.expectLine("by-group", line{
		"reason": "group", "limit": "50/30m", "retry_after_s": 1.118, "group": "team-a", "reserved": nil,
	})
	s.expectLine("reserved", line{
		"reason": "global", "limit": "1000/24h:15m", "retry_after_s": 604800.000001, "group": nil,
		"reserved": 10.0, "retry_after_at_least": true,
	})
}

// The line precedes the acknowledgement: the event is still in the stream, and a dead letter is already
// stored.
func TestLineIsWrittenBeforeTheAck(t *testing.T) {
	s := newFixture(t)
	s.createStream(nil)
	s.log.onLine = func(l line) {
		if _, settled := l["outcome"]; !settled {
			return
		}
		stream, err := s.js.Stream(t.Context(), streamName)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := stream.GetMsg(t.Context(), uint64(l["stream_seq"].(float64))); err != nil {
			t.Errorf("the line %v is written when the event has left the stream: %v", l["msg"], err)
		}
		if l["outcome"] != "dead" {
			return
		}
		if letters := s.letters(); len(letters) == 0 {
			t.Error("the line of a dead event is written when there is no dead letter")
		}
	}
	s.start(func(c *setup) { c.category = "3/30m" })
	for range 6 {
		s.publish("errors", "hello")
	}
	s.publish("broken", "{")
	s.settled(7)
	s.expectNothingLeft()
}

// Neither payload text nor secrets reach the log, whatever the outcome or error.
func TestLogHoldsNoTextOrSecret(t *testing.T) {
	t.Parallel()
	const text = "tOp-SeCrEt-text"
	for _, way := range []string{"token", "webhook"} {
		t.Run(way, func(t *testing.T) {
			s := newFixture(t)
			s.started(func(c *setup) {
				c.webhook, c.category, c.slackTimeout = way == "webhook", "4/30m", 300*time.Millisecond
			})
			s.publish("errors", text)
			s.settled(1)
			s.slack.Respond(devstack.Next(
				devstack.Response{Status: 500, Body: text + s.slack.WebhookURL()}, devstack.Response{Hang: true},
				devstack.Response{Code: "invalid_payload"}))
			s.publish("errors", text)
			s.settled(2)
			s.publish("errors", `{"text":"`+text)
			s.publish("errors", `{"text":"x","cost":"`+text+`"}`)
			s.publish("errors", `{"text":"`+text+`","time":"`+text+`"}`)
			s.publish("errors", text, "Nats-Msg-Id", "twice")
			s.settled(6)
			kit.Check(t, s.slack.Close())
			s.publish("errors", text)
			s.eventually("the absence of Slack is logged", func() bool {
				return len(s.log.waits("slack")) > 1
			})

			secret := s.slack.WebhookURL()[strings.LastIndex(s.slack.WebhookURL(), "/")+1:]
			for _, forbidden := range []string{text, slackToken, secret, "/services/"} {
				if strings.Contains(s.log.text(), forbidden) {
					t.Errorf("the log holds %q", forbidden)
				}
			}
		})
	}
}

func TestLogHoldsNoNATSPassword(t *testing.T) {
	s := newFixture(t)
	s.nats.Stop()
	address, err := url.Parse(s.nats.URL())
	kit.Check(t, err)
	address.User = url.UserPassword("worker", "pAssWord")
	r := s.start(func(c *setup) { c.natsURL = address.String() })
	s.eventually("the absence of NATS is logged", func() bool { return len(s.log.waits("nats")) > 0 })
	shown := s.log.text() + strings.Join(r.Ready(t.Context()), "\n")
	if strings.Contains(shown, "pAssWord") {
		t.Errorf("the password is shown:\n%s", shown)
	}
	if !strings.Contains(shown, address.Host) {
		t.Errorf("the server %s is not shown:\n%s", address.Host, shown)
	}
	if r.connection.Status() != nats.RECONNECTING {
		t.Errorf("the connection is %v, expected one that tries again", r.connection.Status())
	}
}
