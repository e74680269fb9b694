package consume_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/consume"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/test/kit"
)

// muteSwitch mutes categories on demand.
type muteSwitch struct {
	mu    sync.Mutex
	muted map[string]*steering.Order
	fails int // remaining failures of Load
}

func newMuteSwitch(categories ...string) *muteSwitch {
	m := &muteSwitch{muted: map[string]*steering.Order{}}
	m.mute(categories...)
	return m
}

func (m *muteSwitch) mute(categories ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, category := range categories {
		m.muted[category] = &steering.Order{
			Kind: steering.Mute, Target: category,
			Until: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC), By: "alice@ops", Reason: "noise",
		}
	}
}

func (m *muteSwitch) unmute(category string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.muted, category)
}

func (m *muteSwitch) Load(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails > 0 {
		m.fails--
		return errors.New("redis: not yet")
	}
	return nil
}

func (m *muteSwitch) Muted(category string) (*steering.Order, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	order, found := m.muted[category]
	return order, found
}

func with(m *muteSwitch) func(*setup) { return func(c *setup) { c.mutes = m } }

// countedCalls counts the limiter calls that concern events.
type countedCalls struct {
	consume.Limiter
	n *atomic.Int64
}

func (l countedCalls) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	l.n.Add(1)
	return l.Limiter.Admit(ctx, batch)
}

func (l countedCalls) Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error) {
	l.n.Add(1)
	return l.Limiter.Refund(ctx, request, known)
}

func (l countedCalls) InFlight(ctx context.Context, request ratelimit.Request) (ratelimit.InFlight, bool, error) {
	l.n.Add(1)
	return l.Limiter.InFlight(ctx, request)
}

// Each line still names the operator, the end and the reason of the mute.
func TestMutedEventsCostNoRedisCall(t *testing.T) {
	s := newFixture(t)
	var calls atomic.Int64
	mutes := newMuteSwitch("errors")
	s.started(with(mutes), func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return countedCalls{l, &calls} }
	})
	s.publishMany("errors", 300)
	lines := s.settled(300)
	s.expectOutcomes(map[string]int{"dropped muted": 300}, lines)
	fields := map[string]any{
		"mute": "errors", "muted_until": "2026-11-22T03:00:00.000000Z", "muted_by": "alice@ops", "mute_reason": "noise",
	}
	for name, want := range fields {
		if lines[0][name] == nil || name != "muted_until" && lines[0][name] != want {
			t.Errorf("%s: %v, expected %v", name, lines[0][name], want)
		}
	}
	if calls.Load() != 0 || s.charged() != 0 || s.slack.Requests() != 0 {
		t.Errorf("%d calls, %d slots, %d posts, expected none", calls.Load(), s.charged(), s.slack.Requests())
	}
	s.publish("deploys", "not muted")
	s.eventually("another category is posted", func() bool { return s.slack.Accepted() == 1 })
	mutes.unmute("errors")
	s.publish("errors", "no longer muted")
	s.eventually("the category is posted again", func() bool { return s.slack.Accepted() == 2 })
	s.expectNothingLeft()
}

// unanswered repeats each refund, as a worker does if the reply to the first call was lost.
type unanswered struct{ consume.Limiter }

func (l unanswered) Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error) {
	if _, err := l.Limiter.Refund(ctx, request, known); err != nil {
		return false, err
	}
	return l.Limiter.Refund(ctx, request, known)
}

// The repeated refund finds nothing to release; the event is still dropped.
func TestMuteDropsAfterALostRefund(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch()
	s.started(with(mutes), func(c *setup) {
		c.concurrency, c.pace = 1, "1/3s"
		c.limiter = func(l consume.Limiter) consume.Limiter { return unanswered{l} }
	})
	s.publishMany("noise", 20)
	s.publish("errors", "stays")
	s.eventually("all are admitted", func() bool { return s.charged() == 21 })
	mutes.mute("noise")
	if outcomes := tally(s.settled(21)); outcomes["dropped muted"] < 15 {
		t.Errorf("%v, expected that most are dropped as muted", outcomes)
	}
}

// The first attempt certainly failed, so the mute applies at the next turn.
func TestMuteDropsAFailedPost(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch()
	s.started(with(mutes))
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "2"}))
	s.publish("errors", "refused once")
	s.eventually("Slack has refused it", func() bool { return s.slack.Requests() == 1 })
	mutes.mute("errors")
	lines := s.settled(1)
	if lines[0]["reason"] != "muted" || lines[0]["attempts"] != float64(1) {
		t.Errorf("line %v, expected muted after one attempt", lines[0])
	}
	if s.slack.Accepted() != 0 || s.charged() != 0 {
		t.Errorf("%d posts and %d slots, expected none", s.slack.Accepted(), s.charged())
	}
}

// TestAPurgedBacklogIsNotPosted drops a backlog as docs/runbook.md describes it. A purge alone leaves the events that
// the worker holds, and it would post them.
func TestAPurgedBacklogIsNotPosted(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch()
	s.started(with(mutes), func(c *setup) { c.concurrency, c.pace = 1, "1/2s" })
	s.publishMany("errors", 20)
	s.eventually("an event is posted", func() bool { return s.slack.Requests() == 1 })
	mutes.mute("errors")
	stream, err := s.js.Stream(t.Context(), streamName)
	kit.Check(t, err)
	kit.Check(t, stream.Purge(t.Context()))
	if outcomes := tally(s.settled(20)); outcomes["dropped muted"] < 15 {
		t.Errorf("%v, expected that most are dropped as muted", outcomes)
	}
}

func TestMutesLoadBeforeEvents(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch("errors")
	mutes.fails = 2
	s.createStream(nil)
	s.publish("errors", "muted")
	s.started(with(mutes))
	s.expectOutcomes(map[string]int{"dropped muted": 1}, s.settled(1))
	if mutes.fails != 0 {
		t.Errorf("%d attempts are left", mutes.fails)
	}
}

// slowRefund counts the refunds that run at the same time.
type slowRefund struct {
	consume.Limiter
	running, peak *atomic.Int64
}

func (l slowRefund) Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error) {
	defer l.running.Add(-1)
	running := l.running.Add(1)
	for peak := l.peak.Load(); running > peak && !l.peak.CompareAndSwap(peak, running); peak = l.peak.Load() {
	}
	time.Sleep(50 * time.Millisecond)
	return l.Limiter.Refund(ctx, request, known)
}

// Events of a crashed worker that were never posted are refunded, and a batch of them does not wait for one
// refund after the other.
func TestMuteRefundsConcurrently(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	first := s.started()
	s.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "600"}))
	s.publishMany("errors", 60)
	s.eventually("all are admitted", func() bool { return s.charged() == 60 })
	first.crash()
	limiter := slowRefund{running: new(atomic.Int64), peak: new(atomic.Int64)}
	s.start(with(newMuteSwitch("errors")), func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter {
			limiter.Limiter = l
			return limiter
		}
	})
	s.expectOutcomes(map[string]int{"dropped muted": 60}, s.settled(60))
	s.expectCharged(0)
	if peak := limiter.peak.Load(); peak < 4 {
		t.Errorf("%d refunds at a time, expected several", peak)
	}
}

// A record that cannot be read concerns its own event alone.
func TestDamagedRecordOfAMutedEventDelaysNoOther(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	s.publish("errors", "hello", "Nats-Msg-Id", "e1")
	consumer, err := s.js.Consumer(t.Context(), streamName, consumerName)
	kit.Check(t, err)
	messages, err := consumer.Fetch(1)
	kit.Check(t, err)
	for m := range messages.Messages() {
		kit.Check(t, m.Nak()) // so the worker gets it as a redelivery
	}
	key := "{" + namespace + "}:inflight"
	kit.Check(t, s.redis.Client(t).HSet(t.Context(), key, "errors:e1", "not a record").Err())
	s.started(with(newMuteSwitch("errors")))
	s.publish("deploys", "other")
	s.eventually("another category's event is posted", func() bool { return s.slack.Accepted() > 0 })
}

// An event that may be in Slack stops as well, once the result of its post is known: another post could only add
// a copy. It keeps its slot, and its id can be used again.
func TestMuteStopsAFailingEvent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*setup)
		searches int
	}{
		"a webhook cannot search": {webhook, 0}, "searched first": {func(*setup) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			mutes := newMuteSwitch()
			s.started(with(mutes), test.change)
			s.slack.Respond(devstack.Always(devstack.Response{Code: "internal_error", Delay: 200 * time.Millisecond}))
			s.publish("errors", "perhaps", "Nats-Msg-Id", "e1")
			s.eventually("its post is under way", func() bool { return s.slack.Requests() > 0 })
			mutes.mute("errors")
			s.expectLine("e1", line{"outcome": "dropped", "reason": "muted", "ambiguous": true, "attempts": 1.0})
			if n := s.slack.HistoryRequests(); n != test.searches {
				t.Errorf("the channel was searched %d times, expected %d", n, test.searches)
			}
			s.expectCharged(1)
			s.expectNothingLeft()
			s.slack.Respond(nil)
			mutes.unmute("errors")
			s.publish("errors", "perhaps", "Notifier-Event-Id", "e1", "Nats-Msg-Id", "again")
			if again := s.settled(2)[1]; again["outcome"] != "sent" {
				t.Errorf("line %v, expected that the event is sent after the mute", again)
			}
		})
	}
}

// A message that the search finds is sent, not muted.
func TestMuteDoesNotDenyAMessageInSlack(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch()
	s.started(with(mutes))
	s.slack.Respond(devstack.Next(devstack.Response{Accept: true, Reset: true}))
	s.publish("errors", "arrived", "Nats-Msg-Id", "e1")
	s.eventually("Slack has it", func() bool { return s.slack.Accepted() == 1 })
	mutes.mute("errors")
	s.expectLine("e1", line{"outcome": "sent", "found_in_channel": true, "attempts": 1.0})
	s.expectCharged(1)
}
