package ratelimit

import (
	"context"

	"github.com/redis/go-redis/v9"

	"notifier/lua"
)

// ArgumentsOf is how many arguments admit.lua is given for a batch.
func (l *Limiter) ArgumentsOf(batch []Request) int {
	return len(l.newAdmitCall(batch, anyStore).arguments)
}

// Healed waits until the store is healed, and reports whether it is.
func (h *Healer) Healed(ctx context.Context) bool { return h.wait(ctx) }

// Wake is what a connection does whose store is not known to be healed.
func (h *Healer) Wake() { h.wake() }

// ReadScriptsAgain takes the scripts of which there is one for all limiters as they are now, for the mutants.
func ReadScriptsAgain() {
	restoreScript, quarantineScript = redis.NewScript(lua.Restore), redis.NewScript(lua.Quarantine)
}
