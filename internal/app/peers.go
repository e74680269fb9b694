package app

import (
	"sync/atomic"
	"time"

	"notifier/internal/stats"
)

// peerAlive is how long after its last heartbeat a replica counts as alive: three of them may be late.
const peerAlive = 3 * time.Second

// peers remembers which replicas were alive at the last flush.
type peers struct{ names atomic.Pointer[[]string] }

// note takes over what a flush has brought back.
func (p *peers) note(flushed stats.Flushed) {
	var names []string
	for _, peer := range flushed.Peers {
		if flushed.Now.Sub(peer.Seen) < peerAlive {
			names = append(names, peer.Replica)
		}
	}
	p.names.Store(&names)
}

// alive are their names; empty: there was no flush yet.
func (p *peers) alive() []string {
	if names := p.names.Load(); names != nil {
		return *names
	}
	return nil
}
