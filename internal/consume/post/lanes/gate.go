package lanes

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// gate lets posts through while Slack takes them. A failure closes it temporarily: for the time that Slack
// asks for, or for an exponential backoff with jitter. Then a single post goes through as a probe, and the
// others follow when it succeeds; so an outage costs Slack one request at a time from each replica, not one
// per event. Guarded by Lanes.mu.
type gate struct {
	open    bool
	until   time.Time // closed until then
	probing bool      // a probe is under way
	closing int       // counts closings, so that posts which failed together count as one failure
	backoff *backoff.ExponentialBackOff
}

// Backoff bounds how long a gate stays closed after failures.
type Backoff struct {
	First   time.Duration
	Longest time.Duration
	// LongestUnexplained is for failures that may be the event's own: one that fails again and again must not
	// keep the others of its channel waiting.
	LongestUnexplained time.Duration
}

func newGate(bounds Backoff) *gate {
	return &gate{open: true, backoff: &backoff.ExponentialBackOff{
		InitialInterval: bounds.First, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: bounds.Longest,
	}}
}

// ticket is a post's permission to go through the gate: gate.closing when it was given.
type ticket int

// wait is how long a post has to wait; longestWait while a probe is under way, whose end is announced; 0: it
// may enter.
func (g *gate) wait(now time.Time) time.Duration {
	switch left := g.until.Sub(now); {
	case g.open:
		return 0
	case left > 0:
		return left
	case g.probing:
		return longestWait
	}
	return 0
}

// enter gives a ticket where wait is 0. In a closed gate the post is the probe.
func (g *gate) enter() ticket {
	g.probing = !g.open
	return ticket(g.closing)
}

// succeeded opens the gate, and reports whether that post proves that Slack takes posts: one from before the
// gate closed does not.
func (g *gate) succeeded(t ticket) bool {
	if int(t) != g.closing {
		return false
	}
	g.open, g.probing = true, false
	g.backoff.Reset()
	return true
}

// failed closes the gate for atLeast or longer, and returns for how long it is closed now.
func (g *gate) failed(t ticket, now time.Time, atLeast, longest time.Duration) time.Duration {
	if int(t) == g.closing {
		atLeast = max(atLeast, min(longest, g.backoff.NextBackOff()))
	}
	g.closeFor(t, now, atLeast)
	return g.until.Sub(now)
}

// closeFor closes the gate for at least d without counting a failure: another replica was asked to wait.
func (g *gate) closeFor(t ticket, now time.Time, d time.Duration) {
	if int(t) == g.closing {
		g.closing++
		g.open, g.probing = false, false
	}
	if until := now.Add(d); until.After(g.until) {
		g.until = until
	}
}

// release is for a post that has proved nothing. If it was the probe, another post may be.
func (g *gate) release(t ticket) {
	if int(t) == g.closing {
		g.probing = false
	}
}

// closed reports whether posts have to wait for more than a probe to begin.
func (g *gate) closed(now time.Time) bool {
	return !g.open && (g.probing || now.Before(g.until))
}
