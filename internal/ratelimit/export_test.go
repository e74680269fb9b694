package ratelimit

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Unexported names that tests of package ratelimit_test use.
const (
	MaxTiers     = maxTiers
	MaxCount     = maxCount
	MinWindow    = minWindow
	MaxWindow    = maxWindow
	MaxBuckets   = maxBuckets
	MaxExactCost = maxExactCost
)

var (
	ErrHealing = errHealing
	ErrReplica = errReplica
)

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

// What a healer does with a limiter, step by step, for tests in which histories are random and must be
// repeatable.

// KeepJournal lets a limiter remember what it is given, as NewHealer does.
func (l *Limiter) KeepJournal(replica string) {
	l.replica = replica
	l.journal.start(l.plan.Load().remembers)
}

// PutBack puts back all that a limiter remembers, as a healer does.
func (l *Limiter) PutBack(ctx context.Context, connection *redis.Conn) error {
	store, err := run(ctx, l, connection, quarantineCall(l.keys, "primary", 0), decodeQuarantine)
	if err != nil {
		return err
	}
	_, err = l.putBack(ctx, connection, store.token)
	return err
}

// AgeJournal makes all that a limiter remembers older, in microseconds.
func (l *Limiter) AgeJournal(shift int64) {
	j := &l.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	for number := j.oldest; number < j.next; number++ {
		r := j.entry(number)
		for _, at := range []*int64{&r.at, &r.begun, &r.moved, &r.sent} {
			if *at > 0 {
				*at -= shift
			}
		}
	}
}

// JournalTimes sets when an event's last post began and when it was recorded as sent, where the limiter
// remembers that; 0 sets nothing. It knows these times by its own clock alone.
func (l *Limiter) JournalTimes(request Request, begun, sent int64) {
	l.journal.change(request.member(), func(r *remembered) {
		if r.begun > 0 && begun > 0 {
			r.begun = begun
		}
		if r.sent > 0 && sent > 0 {
			r.sent = sent
		}
	})
}

// JournalMoved sets from when an event's slots count, where the limiter remembers that they moved; 0 sets
// nothing. shift is added to the time.
func (l *Limiter) JournalMoved(request Request, moved, shift int64) {
	l.journal.change(request.member(), func(r *remembered) {
		if r.moved > 0 && moved > 0 {
			r.moved = moved + shift
		}
	})
}

// UseToken is the token of the store that a limiter knows, as after its healing.
func (l *Limiter) UseToken(token string) { l.token.Store(&token) }
