package app

import (
	"maps"
	"slices"
	"sync"
	"time"

	"notifier/internal/stats"
)

const (
	// peerAlive is how long after its last heartbeat a replica counts as alive: three of them may be late.
	peerAlive = 3 * time.Second
	// peerStep is the most of that time that passes between two flushes. While Redis is unavailable nobody has a heartbeat, and
	// one that came back empty knows at first only who was the first to report again: that says nothing about the others.
	peerStep = peerAlive / 2
)

// peers remembers which replicas were alive at the last flush.
type peers struct {
	mu    sync.Mutex
	last  time.Time                // of the last flush, by the clock of Redis
	clock time.Duration            // the time that has passed for peers
	seen  map[string]time.Duration // replica -> the last heartbeat, by that clock
}

// note takes over what a flush has brought back.
func (p *peers) note(flushed stats.Flushed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]time.Duration{}
	} else {
		p.clock += min(max(flushed.Now.Sub(p.last), 0), peerStep)
	}
	p.last = flushed.Now
	for _, peer := range flushed.Peers {
		if age := max(flushed.Now.Sub(peer.Seen), 0); age < peerAlive {
			last, known := p.seen[peer.Replica]
			if p.seen[peer.Replica] = p.clock - age; known {
				p.seen[peer.Replica] = max(last, p.clock-age)
			}
		}
	}
	maps.DeleteFunc(p.seen, func(_ string, last time.Duration) bool { return p.clock-last >= peerAlive })
}

// healed takes all but those who did not answer for alive: their heartbeats may be lost with what Redis has forgotten.
func (p *peers) healed(missing []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.seen {
		if !slices.Contains(missing, name) {
			p.seen[name] = p.clock
		}
	}
}

// alive are their names; empty: there was no flush yet.
func (p *peers) alive() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.seen))
}
