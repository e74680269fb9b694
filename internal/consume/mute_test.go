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
	"notifier/test/redistest"
)

// muteSwitch mutes categories when a test says so.
type muteSwitch struct {
	mu    sync.Mutex
	muted map[string]*steering.Order
	fails int // how often Load fails
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
		m.muted[category] = &steering.Order{Kind: steering.Mute, Target: category, Until: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC), By: "alice@ops", Reason: "noise"}
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

// countedCalls counts all calls of the limiter that are about events.
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

// A storm of muted events is dropped without one call of Redis, each with a line that says by whom, until
// when and why.
func TestMutedEventsAreDroppedWithoutACall(t *testing.T) {
	s := newFixture(t)
	var calls atomic.Int64
	mutes := newMuteSwitch("errors")
	s.started(with(mutes), func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return countedCalls{l, &calls} }
	})
	s.publishMany("errors", 300)
	lines := s.settled(300)
	s.expectOutcomes(map[string]int{"dropped muted": 300}, lines)
	for name, want := range map[string]any{"mute": "errors", "muted_until": "2026-11-22T03:00:00.000000Z", "muted_by": "alice@ops", "mute_reason": "noise"} {
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

// mutedWhileWaiting mutes a category of which 20 events wait for their channel's pace, before one of another
// category.
func (s *fixture) mutedWhileWaiting(changes ...func(*setup)) {
	s.Helper()
	mutes := newMuteSwitch()
	s.started(append(changes, with(mutes), func(c *setup) { c.concurrency, c.pace = 1, "1/3s" })...)
	s.publishMany("noise", 20)
	s.publish("errors", "stays")
	s.eventually("all are admitted", func() bool { return s.charged() == 21 })
	mutes.mute("noise")
}

// unanswered is a limiter whose refunds are made twice, as they are when the answer to the first call was
// lost.
type unanswered struct{ consume.Limiter }

func (l unanswered) Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error) {
	if _, err := l.Limiter.Refund(ctx, request, known); err != nil {
		return false, err
	}
	return l.Limiter.Refund(ctx, request, known)
}

// What waits is dropped as well where the answer to its refund was lost: it has nothing left to give back.
func TestMuteDropsAfterALostRefund(t *testing.T) {
	s := newFixture(t)
	s.mutedWhileWaiting(func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return unanswered{l} }
	})
	if outcomes := tally(s.settled(21)); outcomes["dropped muted"] < 15 {
		t.Errorf("%v, expected that most are dropped as muted", outcomes)
	}
}

// An event that a worker had admitted when it died is refunded and dropped by the next one.
func TestMuteRefundsADeadWorkersEvents(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	first := s.started(quick, func(c *setup) { c.concurrency = 1 })
	s.refuse("deploys", time.Minute) // the lane of another channel
	s.mode(devstack.Mode{})
	s.slack.Next(devstack.Behaviour{Hang: true})
	s.publishMany("deploys", 5)
	s.eventually("all are admitted", func() bool { return s.charged() == 9 })
	first.crash()
	before := len(s.log.settled())
	s.started(quick, with(newMuteSwitch("deploys")))
	s.eventually("all that were not posted are dropped", func() bool { return tally(s.log.settled()[before:])["dropped muted"] >= 5 })
	for _, l := range s.log.settled()[before:] {
		if l["outcome"] == "dropped" && l["redelivered"] != true {
			t.Errorf("line %v, expected a redelivery", l)
		}
	}
	s.eventually("only what was posted is charged", func() bool { return s.charged() <= 4 })
}

// An event that is in Slack already is no muted one, whatever is muted when it is delivered again.
func TestMuteDoesNotHideASentEvent(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	s.dieUnacknowledged("e1")
	s.started(with(newMuteSwitch("errors")))
	s.expectLine("e1", line{"outcome": "dropped", "reason": "duplicate"})
	s.expectEachPostedOnce(1)
	s.expectNothingLeft()
}

// A post that has begun goes on: it may be in Slack.
func TestABegunPostGoesOn(t *testing.T) {
	s := newFixture(t)
	s.dieWhilePosting()
	s.started(quick, with(newMuteSwitch("errors")))
	s.expectResumed(true)
	s.expectEachPostedOnce(1)
}

// An event whose post has failed for a known reason is dropped when its turn comes again.
func TestAFailedPostIsDroppedByAMute(t *testing.T) {
	s := newFixture(t)
	mutes := newMuteSwitch()
	s.started(with(mutes))
	s.slack.Next(devstack.Behaviour{RetryAfter: "2"})
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

// Nothing is read before the worker knows what is muted.
func TestAWorkerReadsTheMutesFirst(t *testing.T) {
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

// What waits in the lanes while Redis is away is dropped at its turn, when Redis is back: none is lost, and
// what arrives is dropped meanwhile.
func TestRedisIsAwayWhenAMuteBegins(t *testing.T) {
	s := newFixtureWith(t, func(t *testing.T) *redistest.Server {
		return redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always")
	})
	mutes := newMuteSwitch()
	s.started(with(mutes), func(c *setup) { c.concurrency, c.pace = 1, "1/3s" })
	s.publishMany("noise", 20)
	s.eventually("all are admitted", func() bool { return s.charged() == 20 })
	s.redis.Stop(t)
	mutes.mute("noise")
	s.publishMany("noise", 5)
	s.eventually("what arrives is dropped", func() bool { return tally(s.log.settled())["dropped muted"] == 5 })
	s.redis.Restart(t)
	s.settled(25)
	s.publishMany("noise", 5)
	s.settled(30)
}
