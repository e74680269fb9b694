package consume_test

import (
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

// some stands for a number or text that differs from run to run.
type some string

const (
	aNumber some = "a number"
	aText   some = "a text"
)

// expectWholeLine compares all fields of a line except the time.
func expectWholeLine(t *testing.T, want, got line) {
	t.Helper()
	seen := line{}
	for name, value := range got {
		switch kind, _ := want[name].(some); {
		case name == "ts":
			continue
		case kind == aNumber:
			if number, ok := value.(float64); ok && number >= 0 {
				value = aNumber
			}
		case kind == aText:
			if text, ok := value.(string); ok && text != "" {
				value = aText
			}
		}
		seen[name] = value
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("line of %v (-want +got):\n%s", got["event_id"], diff)
	}
}

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
	expectWholeLine(t, line{
		"level": "info", "msg": "notification sent", "outcome": "sent",
		"event_id": "e1", "category": "errors", "subject": "notify.errors", "stream_seq": 1.0,
		"channel": "C0DEFAULT", "slack_ts": aText, "attempts": 1.0, "latency_ms": aNumber,
	}, s.lineOf("e1"))
	if ts := s.lineOf("e1")["slack_ts"]; ts != s.slack.Messages()[0].TS {
		t.Errorf("slack_ts is %v, expected the message's %s", ts, s.slack.Messages()[0].TS)
	}
}

func TestWebhookEventLine(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.webhook = true })
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	expectWholeLine(t, line{
		"level": "info", "msg": "notification sent", "outcome": "sent",
		"event_id": "e1", "category": "errors", "subject": "notify.errors", "stream_seq": 1.0,
		"attempts": 1.0, "latency_ms": aNumber,
	}, s.lineOf("e1"))
}

func TestEventWithoutIDIsNamedByItsSequence(t *testing.T) {
	s := newFixture(t)
	s.started()
	s.publish("errors", "hello")
	if id := s.settled(1)[0]["event_id"].(string); !strings.HasPrefix(id, "NOTIFY.1.") {
		t.Errorf("event_id is %q, expected NOTIFY.1. and the time of storing", id)
	}
}

func TestDroppedEventLines(t *testing.T) {
	s := newFixture(t)
	s.started(func(c *setup) { c.global, c.category, c.maxAge = "2/30m", "1/30m+5/1h", time.Hour })
	dropped := func(id, category, reason string, seq float64) line {
		return line{
			"level": "info", "msg": "notification dropped", "outcome": "dropped", "reason": reason,
			"event_id": id, "category": category, "subject": "notify." + category, "stream_seq": seq,
		}
	}
	limited := func(l line, limit string) line {
		l["limit"], l["retry_after_s"] = limit, aNumber
		return l
	}
	s.publish("errors", `{"id":"first","text":"x"}`)
	s.lineOf("first")
	s.publish("errors", "x", "Nats-Msg-Id", "by-category")
	expectWholeLine(t, limited(dropped("by-category", "errors", "category", 2), "1/30m"), s.lineOf("by-category"))
	if wait := s.lineOf("by-category")["retry_after_s"].(float64); wait < 1700 || wait > 1800 {
		t.Errorf("retry_after_s is %v, expected just below half an hour", wait)
	}
	s.publish("deploys", "x", "Nats-Msg-Id", "second")
	s.lineOf("second")
	s.publish("other.kind", "x", "Nats-Msg-Id", "by-global")
	expectWholeLine(t, limited(dropped("by-global", "other.kind", "global", 4), "2/30m"), s.lineOf("by-global"))

	s.publish("errors", `{"id":"old","text":"x","time":"2020-01-01T00:00:00Z"}`)
	want := dropped("old", "errors", "expired", 5)
	want["age_s"], want["max_age_s"] = aNumber, 3600.0
	expectWholeLine(t, want, s.lineOf("old"))

	s.publish("errors", `{"id":"first","text":"x"}`)
	expectWholeLine(t, dropped("first", "errors", "duplicate", 6), s.settled(6)[5])
	if n := s.slack.Accepted(); n != 2 {
		t.Errorf("%d events were posted, expected the two that fit", n)
	}
	s.expectCharged(2)
}

// A refusal names the group limit or the reserve. Lines name the group only if the group has a limit.
func TestGroupAndReserveLines(t *testing.T) {
	s := newFixture(t)
	refusals := map[string]ratelimit.Decision{
		"by-group": {Verdict: ratelimit.Group, Tier: s.limit("50/30m")[0], Used: 50, RetryAfter: 1_118 * time.Millisecond},
		"reserved": {
			Verdict: ratelimit.Global, Tier: s.limit("1000/24h:15m")[0], Used: 990, Reserved: 10, AtLeast: true,
			RetryAfter: 604_800_000_001 * time.Microsecond,
		},
		"fixed": {Verdict: ratelimit.Category, Tier: s.limit("200/24h:fixed")[0], Used: 200, RetryAfter: time.Microsecond},
	}
	s.started(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return refusingLimiter{l, refusals} }
		c.group = func(category string) string {
			if category == "team-a.job1" {
				return "team-a"
			}
			return ""
		}
	})
	dropped := func(id, category, reason, limit string, wait, seq float64) line {
		return line{
			"level": "info", "msg": "notification dropped", "outcome": "dropped", "reason": reason,
			"event_id": id, "category": category, "subject": "notify." + category,
			"stream_seq": seq, "limit": limit, "retry_after_s": wait,
		}
	}
	s.publish("team-a.job1", "x", "Nats-Msg-Id", "by-group")
	want := dropped("by-group", "team-a.job1", "group", "50/30m", 1.118, 1)
	want["group"] = "team-a"
	expectWholeLine(t, want, s.lineOf("by-group"))

	s.publish("errors", "x", "Nats-Msg-Id", "reserved")
	want = dropped("reserved", "errors", "global", "1000/24h:15m", 604800.000001, 2)
	want["reserved"], want["retry_after_at_least"] = 10.0, true
	expectWholeLine(t, want, s.lineOf("reserved"))

	s.publish("errors", "x", "Nats-Msg-Id", "fixed")
	expectWholeLine(t, dropped("fixed", "errors", "category", "200/24h:fixed", 0.000001, 3), s.lineOf("fixed"))
	for _, number := range []string{`"retry_after_s":1.118,`, `"retry_after_s":604800.000001,`, `"retry_after_s":0.000001,`} {
		if !strings.Contains(s.log.text(), number) {
			t.Errorf("the log has no %s", number)
		}
	}

	s.publish("team-a.job1", "x", "Nats-Msg-Id", "sent")
	s.publish("team-a.job1", "{", "Nats-Msg-Id", "dead")
	s.publish("team-b.job1", "x", "Nats-Msg-Id", "without")
	for id, group := range map[string]any{"sent": "team-a", "dead": "team-a", "without": nil} {
		if got := s.lineOf(id)["group"]; got != group {
			t.Errorf("%s: the group is %v, expected %v", id, got, group)
		}
	}
}

func TestDeadEventLines(t *testing.T) {
	s := newFixture(t)
	s.started()
	dead := func(id, reason string, seq float64) line {
		return line{
			"level": "warn", "msg": "notification dead", "outcome": "dead", "reason": reason, "detail": aText,
			"event_id": id, "category": "errors", "subject": "notify.errors", "stream_seq": seq, "letter_seq": seq,
		}
	}
	s.publish("errors", `{"text":`, "Nats-Msg-Id", "broken")
	expectWholeLine(t, dead("broken", "malformed", 1), s.lineOf("broken"))
	s.publish("errors", `{"text":"x","channel":"C0ELSE"}`, "Nats-Msg-Id", "elsewhere")
	expectWholeLine(t, dead("elsewhere", "unroutable", 2), s.lineOf("elsewhere"))

	s.slack.Respond(devstack.Next(devstack.Response{Code: "channel_not_found"}))
	s.publish("errors", "hello", "Nats-Msg-Id", "rejected")
	want := dead("rejected", "slack_rejected", 3)
	want["detail"], want["channel"], want["attempts"] = "channel_not_found", "C0DEFAULT", 1.0
	expectWholeLine(t, want, s.lineOf("rejected"))
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
