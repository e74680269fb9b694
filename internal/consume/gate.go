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
	closing int       // counts closings, so that posts which failed together count as one failure
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

// pass is one post's permission to go through the gate. Whoever gets it defers release, and reports how the post ended with
// one of the other methods; the first call of any of them counts, and the later ones do nothing. It is used by one goroutine.
type pass struct {
	gate    *gate
	closing int // gate.closing when it was given out
	used    bool
}

// enter waits until a post may go through. Its error is ctx's, when that ends first.
func (g *gate) enter(ctx context.Context) (*pass, error) {
	for {
		p, wait, changed := g.tryEnter()
		if p != nil {
			return p, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

// tryEnter gives a pass, or how long to wait and what ends the wait early.
func (g *gate) tryEnter() (*pass, time.Duration, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := time.Until(g.until)
	if g.open || (wait <= 0 && !g.probing) {
		g.probing = !g.open
		return &pass{gate: g, closing: g.closing}, 0, nil
	}
	if wait <= 0 {
		wait = time.Hour // a probe is under way, and its end is announced
	}
	return nil, wait, g.changed
}

// succeeded reports that Slack has answered as it should. It returns whether that means that Slack is available: the answer
// to a post from before the gate closed proves nothing.
func (p *pass) succeeded() bool {
	if p.use() {
		return p.gate.succeeded(p.closing)
	}
	return false
}

// failed closes the gate for at least so long, and returns for how long it is closed now.
func (p *pass) failed(atLeast time.Duration) time.Duration {
	if p.use() {
		return p.gate.failed(p.closing, atLeast)
	}
	return 0
}

// closeFor closes the gate for d without counting a failure: another replica was asked to wait.
func (p *pass) closeFor(d time.Duration) {
	if p.use() {
		p.gate.closeFor(p.closing, d)
	}
}

// release gives the pass back for a post that is not made. If it was to be the probe, another post may be.
func (p *pass) release() {
	if p.use() {
		p.gate.release(p.closing)
	}
}

func (p *pass) use() (first bool) {
	first = !p.used
	p.used = true
	return first
}

func (g *gate) succeeded(closing int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closing != g.closing {
		return false
	}
	if !g.open {
		g.open, g.probing = true, false
		g.announce()
	}
	g.backoff.Reset()
	return true
}

func (g *gate) failed(closing int, atLeast time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closing == g.closing {
		atLeast = max(atLeast, min(longestBackoff, g.backoff.NextBackOff()))
	}
	g.shut(closing, atLeast)
	return time.Until(g.until)
}

func (g *gate) closeFor(closing int, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut(closing, d)
}

func (g *gate) release(closing int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closing == g.closing && g.probing {
		g.probing = false
		g.announce()
	}
}

// shut closes the gate for at least d; mu is held.
func (g *gate) shut(closing int, d time.Duration) {
	if closing == g.closing {
		g.closing++
		g.open, g.probing = false, false
	}
	if until := time.Now().Add(d); until.After(g.until) {
		g.until = until
	}
	g.announce()
}

// closed reports whether posts have to wait. A gate that is only waiting for a probe is not closed: there may be no
// event in flight that could be it.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.open && (g.probing || time.Now().Before(g.until))
}

// announce wakes every waiting post; mu is held.
func (g *gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}
