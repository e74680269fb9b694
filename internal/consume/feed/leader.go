package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/availability"
	"notifier/internal/wait"
)

// After a leader change the consumer is the same and answers again as soon as there is a leader. So the pull goes on asking
// it, often, and at the same time looks up whether it still is that consumer: binding again first would cost the time of its
// look-ups once more.

// leaderRetry is the pause before a consumer that has no leader is asked again.
const leaderRetry = 250 * time.Millisecond

// errNoLeader is a consumer that no server answers for.
var errNoLeader = errors.New("no server answers for the consumer: it has no leader, or JetStream is not available")

// isLeaderless reports whether a status says that the consumer moves to another server.
func isLeaderless(code, description string) bool {
	return code == "503" || code == "409" && (strings.Contains(description, "leadership change") || strings.Contains(description, "server shutdown"))
}

// pause puts off requests for d. The caller holds p.mu.
func (p *pull) pause(d time.Duration) {
	p.notBefore = p.heard.Add(d)
	time.AfterFunc(d, func() { signal(p.wake) })
}

// reportTrouble reports that no server has answered for the consumer, or that it refuses requests, once for each time. Where nobody
// answers, the consumer is looked up.
func (p *pull) reportTrouble(ctx context.Context) {
	p.mu.Lock()
	trouble := p.trouble
	p.trouble = nil
	p.mu.Unlock()
	if trouble == nil {
		return
	}
	p.feed.Tracker.Lost(availability.Consumer, trouble)
	if errors.Is(trouble, errNoLeader) && p.check != nil {
		p.checks.start(func() { p.lookUpConsumer(ctx) })
	}
}

// lookUpConsumer asks until it is known whether the consumer is the one that is pulled from; if it is not, the pull ends.
func (p *pull) lookUpConsumer(ctx context.Context) {
	for {
		err := p.check(ctx)
		if err == nil {
			p.mu.Lock()
			p.answered = true
			p.mu.Unlock()
			return
		}
		if errors.Is(err, errConsumerGone) {
			p.lose(err)
			return
		}
		if !wait.For(ctx, wait.Jitter(leaderRetry)) {
			return
		}
	}
}

// sameConsumer is nil when the consumer is the one that was bound, and errConsumerGone when it is not; any other error leaves
// that open.
func (s *Feed) sameConsumer(ctx context.Context, bound *jetstream.ConsumerInfo) error {
	consumer, err := s.js.Consumer(ctx, s.Stream, s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", errConsumerGone, err)
	case err != nil:
		return err
	case !consumer.CachedInfo().Created.Equal(bound.Created):
		return fmt.Errorf("%w: it was created again", errConsumerGone)
	}
	return nil
}

// background runs one function at a time beside the others.
type background struct {
	running atomic.Bool
	all     sync.WaitGroup
}

// start runs f, unless an earlier one still runs.
func (b *background) start(f func()) {
	if b.running.CompareAndSwap(false, true) {
		b.all.Go(func() {
			defer b.running.Store(false)
			f()
		})
	}
}

func (b *background) wait() { b.all.Wait() }
