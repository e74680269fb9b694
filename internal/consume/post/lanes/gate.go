package lanes

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// gate lets posts through while Slack takes them. A failure closes it: for as long as Slack says, or for an
// exponential backoff with jitter. Then one post goes through as a probe, and the others follow if it
// succeeds. So an outage costs Slack one request at a time from each worker. Lanes.mu guards it.
type gate struct {
	open     bool
	until    time.Time // closed until then
	probing  bool      // a probe is under way
	closings ticket    // posts that failed together count as one failure
	backoff  *backoff.ExponentialBackOff
}

// Backoff bounds how long a gate stays closed after failures.
type Backoff struct {
	First time.Duration
	Max   time.Duration
	// MaxUnexplained bounds it after failures that the event itself may have caused: one that fails again and
	// again must not hold up its channel.
	MaxUnexplained time.Duration
	// Retries is the pause after a failed retry until the next one, of any item of the lane. Without it, the
	// retries of several failing items would use up the channel's pace at once.
	Retries time.Duration
}

func newGate(bounds Backoff) *gate {
	return &gate{open: true, backoff: &backoff.ExponentialBackOff{
		InitialInterval: bounds.First, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: bounds.Max,
	}}
}

// ticket admits one post. It holds gate.closings at that time.
type ticket int

// opens returns when posts, or a probe, may go through. It is in the past for an open gate.
func (g *gate) opens() time.Time {
	if g.open {
		return time.Time{}
	}
	return g.until
}

// wait returns how long a post has to wait, for a time or, while a probe is under way, unscheduled.
func (g *gate) wait(now time.Time) time.Duration {
	if !g.open && g.probing {
		return unscheduled
	}
	return max(0, g.opens().Sub(now))
}

// enter admits a post after wait returned zero. If the gate is closed, the post is the probe.
func (g *gate) enter() ticket {
	g.probing = !g.open
	return g.closings
}

// succeeded opens the gate. It returns false for a post from before the gate last closed.
func (g *gate) succeeded(t ticket) bool {
	if t != g.closings {
		return false
	}
	g.open, g.probing, g.until = true, false, time.Time{}
	g.backoff.Reset()
	return true
}

// failed closes the gate for atLeast, or for the next backoff if that is longer, but not longer than limit.
func (g *gate) failed(t ticket, now time.Time, atLeast, limit time.Duration) {
	if t == g.closings {
		atLeast = max(atLeast, min(limit, g.backoff.NextBackOff()))
	}
	g.closeFor(t, now, atLeast)
}

// closeFor closes the gate for d and counts no failure.
func (g *gate) closeFor(t ticket, now time.Time, d time.Duration) {
	if t == g.closings {
		g.closings++
		g.open, g.probing = false, false
	}
	if until := now.Add(d); until.After(g.until) {
		g.until = until
	}
}

// release ends a turn that proved nothing. If it was the probe, another post may be.
func (g *gate) release(t ticket) {
	if t == g.closings {
		g.probing = false
	}
}
