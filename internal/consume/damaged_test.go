package consume_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/testkit"
)

// put writes a key as something else than notifier would.
func (s *station) put(key string) {
	s.Helper()
	testkit.Check(s.T, s.redis.Client(s.T).Set(s.Context(), "{"+namespace+"}:"+key, "somebody else's", 0).Err())
}

func (s *station) remove(key string) {
	s.Helper()
	testkit.Check(s.T, s.redis.Client(s.T).Del(s.Context(), "{"+namespace+"}:"+key).Err())
}

func TestADamagedCategoryHoldsUpItselfAlone(t *testing.T) {
	for _, mode := range []string{"jetstream", "core"} {
		t.Run(mode, func(t *testing.T) {
			s := newStation(t)
			r := s.started(func(c *setup) { c.core, c.batch = mode == "core", 16 })
			s.put("category:errors")
			for i := range 6 {
				for _, category := range []string{"errors", "deploys"} {
					s.publishCore(category, fmt.Sprint(category, i), "Nats-Msg-Id", fmt.Sprint(category, i))
				}
			}
			if diff := cmp.Diff(map[string]int{"sent": 6}, tally(s.settled(6))); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			s.eventually("the key is named", func() bool { return strings.Contains(r.waitsFor("redis_key"), `"{test}:category:errors"`) })
			if reasons := r.Ready(t.Context()); len(reasons) > 0 {
				t.Errorf("not ready: %q", reasons)
			}
			for _, line := range s.log.settled() {
				if line["category"] != "deploys" {
					t.Errorf("settled: %v", line)
				}
			}
			s.remove("category:errors")
			s.settled(12)
			s.expectEachPostedOnce(12)
			s.eventually("it is over", func() bool { return r.waitsFor("redis_key") == "" })
		})
	}
}

// More events of a damaged category than a worker may hold do not keep it from the others.
func TestManyEventsOfADamagedCategoryLeaveRoom(t *testing.T) {
	s := newStation(t)
	s.started(func(c *setup) { c.batch = 8 })
	s.put("category:errors")
	s.publishMany("errors", 4*8+16)
	s.publishMany("deploys", 5)
	if diff := cmp.Diff(map[string]int{"sent": 5}, tally(s.settled(5))); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// When such events are all that a worker may hold, and the server takes none back, it is not ready. Nothing is lost, and the
// removal of the key is all that it takes.
func TestADamagedCategoryThatFillsAWorkerIsNamedAndHealsWhenItIsRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		events     int
		maxDeliver int
		why        string
	}{"max_ack_pending": {600, -1, "max_ack_pending"}, "max_deliver": {40, 5, "max_deliver"}} {
		t.Run(name, func(t *testing.T) {
			s := newStation(t)
			s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxDeliver, c.MaxAckPending = test.maxDeliver, 512 })
			r := s.started(func(c *setup) { c.batch = 8 })
			s.put("category:errors")
			s.publishMany("errors", test.events)
			s.publishMany("deploys", 5)
			s.eventually("the worker is not ready", func() bool {
				reasons := strings.Join(r.Ready(t.Context()), "\n")
				return strings.HasPrefix(reasons, "backlog: ") && strings.Contains(reasons, `"{test}:category:errors"`) && strings.Contains(reasons, test.why)
			})
			s.eventually("all that it may hold is held", func() bool { return r.Held()["backlog"] >= 32 })
			s.remove("category:errors")
			if diff := cmp.Diff(map[string]int{"sent": test.events + 5}, tally(s.settled(test.events+5))); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			s.eventually("the worker is ready", func() bool { return len(r.Ready(t.Context())) == 0 })
		})
	}
}

// What had to stay because the server took nothing back goes when it does.
func TestEventsOfADamagedCategoryGoBackWhenThereIsRoom(t *testing.T) {
	s := newStation(t)
	s.createConsumer(func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 40 })
	r := s.started(func(c *setup) { c.batch = 8 })
	s.slack.Always(devstack.Behaviour{Status: 503})
	s.publishMany("deploys", 20)
	s.eventually("half of max_ack_pending is used", func() bool { return r.Holds() == 20 })
	s.put("category:errors")
	s.publishMany("errors", 3)
	s.eventually("events of the damaged category are held", func() bool { return r.Holds() >= 22 && r.waitsFor("redis_key") != "" })
	s.slack.Always(devstack.Behaviour{})
	s.settled(20)
	s.eventually("all are given back", func() bool { return r.Holds() == 0 })
	s.remove("category:errors")
	s.settled(23)
}

// In core mode nothing is kept, and what is lost is of the damaged category: here what exceeds a quarter of 32.
func TestInCoreModeADamagedCategoryLosesItsOwnEvents(t *testing.T) {
	s := newStation(t)
	r := s.started(coreMode, func(c *setup) { c.batch = 8 })
	s.put("category:errors")
	s.slack.Always(devstack.Behaviour{Delay: 200 * time.Millisecond})
	for i := range 20 {
		s.publishCore("errors", fmt.Sprint("error ", i))
	}
	for i := range 12 {
		s.publishCore("deploys", fmt.Sprint("deploy ", i))
	}
	if diff := cmp.Diff(map[string]int{"sent": 12}, tally(s.settled(12))); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	s.eventually("the loss is logged", func() bool {
		lines := s.log.named("events lost")
		return r.Lost() == 12 && len(lines) > 0 && strings.Contains(fmt.Sprint(lines[0]["reason"]), `"{test}:category:errors"`)
	})
	s.remove("category:errors")
	s.settled(20)
}

// Before an event of another category is lost for want of room, those of the damaged one are.
func TestInCoreModeADamagedCategoryGivesItsRoomToOthers(t *testing.T) {
	s := newStation(t)
	r := s.started(coreMode, func(c *setup) { c.batch = 8 })
	s.mode(devstack.Mode{Fail: []devstack.Failure{{Text: "deploy", Kind: devstack.FailHTML}}})
	s.put("category:errors")
	for i := range 6 {
		s.publishCore("errors", fmt.Sprint("error ", i))
	}
	s.eventually("they are held", func() bool { return r.Holds() == 6 && r.waitsFor("redis_key") != "" })
	for i := range 24 { // what may wait of 32
		s.publishCore("deploys", fmt.Sprint("deploy ", i))
	}
	s.eventually("they are lost", func() bool { return r.Lost() == 6 })
	s.mode(devstack.Mode{})
	s.settled(24)
	if r.Lost() != 6 {
		t.Errorf("%d events are lost, expected 6", r.Lost())
	}
}

// Events that cannot be decided grow old like any others.
func TestEventsOfADamagedCategoryExpire(t *testing.T) {
	for _, mode := range []string{"jetstream", "core"} {
		t.Run(mode, func(t *testing.T) {
			s := newStation(t)
			r := s.started(func(c *setup) { c.core, c.maxAge = mode == "core", 2*time.Second })
			s.put("category:errors")
			for range 3 {
				s.publishCore("errors", "hello")
			}
			if diff := cmp.Diff(map[string]int{"dropped expired": 3}, tally(s.settled(3))); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			s.eventually("none is in flight", func() bool { return r.Holds() == 0 }) // a line is written before its event is released
			if n := s.slack.Accepted(); n != 0 {
				t.Errorf("%d events are in Slack, expected none", n)
			}
		})
	}
}

func TestADamagedPaceHoldsUpItsChannelAlone(t *testing.T) {
	s := newStation(t)
	r := s.started(func(c *setup) { c.pace = "100/10s" })
	s.put("pace:C0DEFAULT")
	s.publish("errors", "in the default channel") // to the default channel
	s.publish("deploys", "hello")
	s.settled(1)
	s.eventually("the key is named", func() bool { return strings.Contains(r.waitsFor("slack"), `"{test}:pace:C0DEFAULT"`) })
	if reasons := r.Ready(t.Context()); len(reasons) > 0 {
		t.Errorf("not ready: %q", reasons)
	}
	s.remove("pace:C0DEFAULT")
	s.settled(2)
	s.expectEachPostedOnce(2)
}

// A key that all categories share stops them all. It is named, and nothing more than its removal is needed.
func TestADamagedGlobalKeyIsNamedAndHealsWhenItIsRemoved(t *testing.T) {
	s := newStation(t)
	r := s.started()
	s.put("global")
	s.publish("errors", "hello")
	s.eventually("the key is named", func() bool {
		return strings.Contains(r.waitsFor("redis"), `"{test}:global"`) && strings.Contains(strings.Join(r.Ready(t.Context()), ""), `"{test}:global"`)
	})
	s.remove("global")
	s.settled(1)
	s.expectEachPostedOnce(1)
}

// What a worker pauses for is what Slack may ask for.
func TestSlacksLongestWaitIsTheLongestPause(t *testing.T) {
	if slackout.MaxRetryAfter != ratelimit.LongestPause {
		t.Errorf("Slack may ask for %s, and a pause lasts %s at most", slackout.MaxRetryAfter, ratelimit.LongestPause)
	}
}

// Rejected events that cannot be stored as dead letters fill a worker in the end. It is not ready then, because it reads no
// more, and goes on when the stream accepts letters.
func TestAWorkerFullOfDeadEventsIsNotReady(t *testing.T) {
	s := newStation(t)
	full := s.refuseLetters()
	r := s.started(func(c *setup) { c.batch = 2 })
	s.slack.Always(devstack.Behaviour{Code: "no_text"})
	s.publishMany("errors", 10)
	s.eventually("the worker is not ready", func() bool {
		reasons := strings.Join(r.Ready(t.Context()), "\n")
		return strings.Contains(reasons, "dead_letter: ") && strings.Contains(reasons, "no room is left")
	})
	s.slack.Always(devstack.Behaviour{})
	full.MaxMsgs = 1000
	_, err := s.js.UpdateStream(t.Context(), full)
	testkit.Check(t, err)
	s.settled(10)
	s.eventually("the worker is ready", func() bool { return len(r.Ready(t.Context())) == 0 })
}
