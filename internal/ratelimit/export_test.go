package ratelimit

import "context"

// Unexported names that tests of package ratelimit_test use.
const (
	MaxTiers     = maxTiers
	MaxCount     = maxCount
	MinWindow    = minWindow
	MaxWindow    = maxWindow
	MaxBuckets   = maxBuckets
	MaxExactCost = maxExactCost
)

var ErrHealing = errHealing

type DamagedKey = damagedKey

func (r Rules) Reserves(global Tier) bool { return r.reserves(global) }

func (l Limit) Exact() bool { return l.exact() }

// ArgumentsOf is how many arguments admit.lua is given for a batch.
func (l *Limiter) ArgumentsOf(batch []Request) int {
	return len(l.newAdmitCall(batch, anyStore).call.arguments)
}

// Healed waits until the store is healed, and reports whether it is.
func (h *Healer) Healed(ctx context.Context) bool { return h.wait(ctx) }

// Wake is what a connection does whose store is not known to be healed.
func (h *Healer) Wake() { h.wake() }

// ReadScriptsAgain takes the scripts as they are now, for the mutants.
func ReadScriptsAgain() { scripts = newScripts() }
