package consume_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/internal/testkit"
)

func coreMode(c *setup) { c.core = true }

// publishCore publishes without a stream, to whoever listens.
func (s *station) publishCore(category, payload string, headers ...string) {
	s.Helper()
	message := nats.NewMsg("notify." + category)
	message.Data = []byte(payload)
	for i := 0; i < len(headers); i += 2 {
		message.Header.Set(headers[i], headers[i+1])
	}
	testkit.Check(s.T, s.conn.PublishMsg(message))
}

func TestInCoreModeAQueueGroupSharesTheEvents(t *testing.T) {
	s := newStation(t)
	s.started(coreMode, theLimits)
	s.started(coreMode, theLimits)
	for i := range 30 {
		s.publishCore("errors", fmt.Sprintf("event %d", i))
	}
	lines := s.settled(30)
	s.expectEachPostedOnce(10)
	if diff := cmp.Diff(map[string]int{"sent": 10, "dropped category": 20}, tally(lines)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	for _, l := range lines {
		if seq, given := l["stream_seq"]; given {
			t.Errorf("a line has stream_seq %v, expected none without a stream", seq)
		}
	}
	if _, err := s.js.Stream(t.Context(), streamName); err == nil {
		t.Error("a stream was created in core mode")
	}
}

func TestInCoreModeDeadLettersGoToWhoeverListens(t *testing.T) {
	s := newStation(t)
	letters, err := s.conn.SubscribeSync("notify-dead.>")
	testkit.Check(t, err)
	testkit.Check(t, s.conn.Flush())
	s.started(coreMode)
	s.publishCore("errors", "{", "Nats-Msg-Id", "bad", "Notifier-Stream-Seq", "7")
	letter, err := letters.NextMsg(testkit.Patience)
	testkit.Check(t, err)
	header := letter.Header
	if letter.Subject != "notify-dead.errors" || string(letter.Data) != "{" || header.Get("Notifier-Event-Id") != "bad" ||
		header.Get("Notifier-Reason") != "malformed" || header.Get("Notifier-Stream-Seq") != "" {
		t.Errorf("the dead letter is %s %q with the headers %v", letter.Subject, letter.Data, header)
	}
	expectLine(t, line{
		"level": "warn", "msg": "notification dead", "outcome": "dead", "reason": "malformed", "detail": aText,
		"event_id": "bad", "category": "errors", "subject": "notify.errors",
	}, s.lineOf("bad"))
}

func TestInCoreModeHeldEventsAreSentWhenSlackIsBack(t *testing.T) {
	s := newStation(t)
	s.started(coreMode, func(c *setup) { c.batch = 50 })
	s.slack.Always(devstack.Behaviour{Status: 503})
	for i := range 100 {
		s.publishCore("errors", fmt.Sprintf("event %d", i))
	}
	s.eventually("Slack is waited for", func() bool { return len(s.log.waits("slack")) > 0 })
	s.slack.Always(devstack.Behaviour{})
	s.settled(100)
	s.expectEachPostedOnce(100)
}

func TestInCoreModeShutdownSettlesWhatHasArrived(t *testing.T) {
	s := newStation(t)
	r := s.started(coreMode, func(c *setup) { c.batch, c.concurrency, c.shutdown = 4, 2, testkit.Patience })
	s.slack.Always(devstack.Behaviour{Delay: 10 * time.Millisecond})
	for i := range 100 {
		s.publishCore("errors", fmt.Sprintf("event %d", i))
	}
	testkit.Check(t, s.conn.Flush())
	testkit.Check(t, r.connection.Flush()) // they have arrived
	testkit.Check(t, r.stop())
	s.settled(100)
	s.expectEachPostedOnce(100)
}

func TestInCoreModeAWorkerGoesOnAfterARestartOfNATS(t *testing.T) {
	s := newStation(t)
	r := s.started(coreMode)
	s.nats.Stop()
	s.eventually("the worker reports that NATS is unavailable", func() bool { return len(s.log.waits("nats")) == 1 && len(r.Ready(t.Context())) > 0 })
	testkit.Check(t, r.Live())
	testkit.Check(t, s.nats.Start())
	s.eventually("the worker is ready", func() bool { return len(r.Ready(t.Context())) == 0 })
	s.eventually("an event is settled", func() bool {
		s.publishCore("errors", "hello")
		return len(s.log.settled()) > 0
	})
}

func TestInCoreModeWhatIsLostIsCounted(t *testing.T) {
	s := newStation(t)
	r := s.started(coreMode, func(c *setup) { c.shutdown = 0 })
	s.slack.Always(devstack.Behaviour{Status: 503})
	for range 10 {
		s.publishCore("errors", "hello")
	}
	s.eventually("all are held", func() bool { return r.Holds() == 10 })
	testkit.Check(t, r.stop())
	lines := s.log.named("events lost")
	if r.Lost() != 10 || len(lines) != 1 || lines[0]["count"] != 10.0 {
		t.Errorf("%d lost by the count, lines %v; expected 10 and one line", r.Lost(), lines)
	}
}
