package consume

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// gate stands before Slack and lets posts through while Slack takes them. A failure closes it for a while: the time
// that Slack asks for, or an exponential backoff with jitter. Then a single post goes through as a probe, and the
// others follow when it succeeds; so an outage costs Slack one request at a time from each replica, not one per event.
type gate struct {
	mu      sync.Mutex
	open    bool
	until   time.Time // closed until then
	probing bool      // a probe is under way
	round   int       // counts closings, so that posts which failed together count as one failure
	backoff *backoff.ExponentialBackOff
	changed chan struct{} // closed and replaced whenever a waiting post should look again
}

// Bounds of the backoff.
const (
	firstBackoff   = 500 * time.Millisecond
	longestBackoff = time.Minute
)

func newGate() *gate {
	return &gate{
		open: true,
		backoff: &backoff.ExponentialBackOff{
			InitialInterval: firstBackoff, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: longestBackoff,
		},
		changed: make(chan struct{}),
	}
}

// enter waits until this post may go and returns the round that it belongs to. It fails only when ctx ends
// while it waits.
// Every enter is followed by one passed, failed or rest.
func (g *gate) enter(ctx context.Context) (round int, err error) {
	for {
		g.mu.Lock()
		wait := time.Until(g.until)
		if g.open || (wait <= 0 && !g.probing) {
			g.probing = !g.open
			round = g.round
			g.mu.Unlock()
			return round, nil
		}
		changed := g.changed
		g.mu.Unlock()
		if wait <= 0 {
			wait = time.Hour // a probe is under way: its end is told
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
		timer.Stop()
	}
}

// passed says that Slack has answered as it should, and reports whether that means that Slack is there: an answer to
// a post from before the gate closed says nothing about now.
func (g *gate) passed(round int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if round != g.round {
		return false
	}
	if !g.open {
		g.open, g.probing = true, false
		g.announce()
	}
	g.backoff.Reset()
	return true
}

// failed closes the gate, for at least so long, and returns for how long it is closed now.
func (g *gate) failed(round int, atLeast time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if round == g.round {
		atLeast = max(atLeast, min(longestBackoff, g.backoff.NextBackOff()))
	}
	return g.shut(round, atLeast)
}

// rest closes the gate for d without counting a failure: somebody else has been told to wait. With 0 it only says that
// this post is not made; if it was to be the probe, another one may be.
func (g *gate) rest(round int, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d > 0 {
		g.shut(round, d)
	} else if round == g.round && g.probing {
		g.probing = false
		g.announce()
	}
}

func (g *gate) shut(round int, d time.Duration) time.Duration {
	if round == g.round {
		g.round++
		g.open, g.probing = false, false
	}
	if until := time.Now().Add(d); until.After(g.until) {
		g.until = until
	}
	g.announce()
	return time.Until(g.until)
}

// closed reports whether posts have to wait. A gate that is only waiting for a probe is not closed: there may be no
// post in hand that could be it.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.open && (g.probing || time.Now().Before(g.until))
}

func (g *gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}
