package consume_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"notifier/internal/consume"
	"notifier/internal/ratelimit"
)

const budget = 4 << 20 // bytes; a request may bring 256 KiB

// tight configures a small memory budget and the default EVENT_MAX_BYTES.
func tight(c *setup) { c.budget, c.maxBytes = budget, 65_536 }

// expectWithinBudget checks that events in flight and requested never exceeded the budget together.
func (s *fixture) expectWithinBudget(replicas ...*replica) {
	s.Helper()
	for i, r := range replicas {
		if _, peak := r.Bytes(); peak > budget {
			s.Errorf("worker %d: %d bytes were in flight or requested, expected at most %d", i, peak, budget)
		}
	}
}

// publishLarge stores n events with payloads of the given size, and a good event after every fifth.
func (s *fixture) publishLarge(n, size int) (good int) {
	s.Helper()
	payload := strings.Repeat("x", size)
	for i := range n {
		s.publish("large", payload)
		if i%5 == 4 {
			s.publish("errors", fmt.Sprintf("good %d", good))
			good++
		}
	}
	return good
}

// undecided delays all decisions until decide is called, so that all delivered events are in flight.
func undecided() (change func(*setup), decide func()) {
	wait := make(chan struct{})
	return func(c *setup) {
		c.limiter = func(l consume.Limiter) consume.Limiter { return waitingLimiter{l, wait} }
	}, sync.OnceFunc(func() { close(wait) })
}

type waitingLimiter struct {
	consume.Limiter
	wait chan struct{}
}

func (l waitingLimiter) Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error) {
	select {
	case <-l.wait:
		return l.Limiter.Admit(ctx, batch)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Each message exceeds max_bytes of a request, so the server refuses request after request. Good events
// behind them still pass, and memory stays bounded.
func TestOversizedBacklogDoesNotBlockOthers(t *testing.T) {
	s := newFixture(t)
	s.createConsumer(impatient)
	good := s.publishLarge(60, 900_000)
	r := s.started(tight)
	s.expectOutcomes(map[string]int{"dead too_large": 60, "sent": good}, s.settled(60+good))
	s.expectNothingLeft()
	s.expectWithinBudget(r)
	if lines := s.log.waits("consumer"); len(lines) > 0 {
		t.Errorf("the worker lost its consumer: %v", lines)
	}
}

func TestUnneededHeadersAreDropped(t *testing.T) {
	s := newFixture(t)
	s.createStream(nil)
	long := strings.Repeat("h", 60_000)
	for i := range 400 {
		s.publish("errors", fmt.Sprintf("event %d", i),
			"X-Long", long, "X-Short", "kept", "Nats-Msg-Id", fmt.Sprintf("id-%d", i))
	}
	s.publish("errors", "{", "X-Long", long, "X-Short", "kept", "Nats-Msg-Id", "bad")
	wait, decide := undecided()
	r := s.started(wait, tight, func(c *setup) { c.batch = 128 })
	// 69 whole messages would fill the budget.
	s.eventually("all are in flight", func() bool { return r.Snapshot().InFlight == 401 })
	decide()
	s.settled(401)
	s.expectEachPostedOnce(400)
	s.expectWithinBudget(r)
	header := s.letter("bad").Header
	if header.Get("X-Short") != "kept" || header.Get("X-Long") != "" {
		t.Errorf("the letter's headers are %v, expected the short one alone", header)
	}
	s.eventually("all that was in flight has been given back", func() bool {
		now, _ := r.Bytes()
		return now == 0
	})
}

func TestCreatedStreamLimitsMessageSize(t *testing.T) {
	s := newFixture(t)
	s.started()
	if got := s.streamInfo(streamName).Config.MaxMsgSize; got != 1<<20 {
		t.Errorf("max_msg_size is %d, expected %d", got, 1<<20)
	}
}
