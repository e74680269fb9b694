package ratelimit

import (
	"context"
	"time"

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

// ArgumentsOf counts the arguments of admit.lua for a batch.
func (l *Limiter) ArgumentsOf(batch []Request) int {
	return len(l.newAdmitCall(batch, anyStore).call.arguments)
}

// Healed waits for the healing, up to healPatience, and reports whether the store is healed.
func (h *Healer) Healed(ctx context.Context) bool { return h.wait(ctx) }

// Wake makes the Healer look at the store at once, as a connection to an unhealed store does.
func (h *Healer) Wake() { h.wake() }

// LookAtSettingsAgain makes the next Run look at the server's settings at once.
func (h *Healer) LookAtSettingsAgain() { h.settingsSeen = time.Time{} }

// ReadScriptsAgain picks up scripts that a mutant has changed.
func ReadScriptsAgain() { scripts = newScripts() }

// The following functions are the steps of a Healer, for random histories that must be repeatable.

// KeepJournal makes a limiter remember its admissions, as NewHealer does.
func (l *Limiter) KeepJournal(replica string) {
	l.replica = replica
	l.journal.start(l.plan.Load().remembers)
}

// Restore restores the journal of a limiter, as a Healer does.
func (l *Limiter) Restore(ctx context.Context, connection *redis.Conn) error {
	store, err := run(ctx, l, connection, quarantineCall(l.keys, "primary", 0), decodeQuarantine)
	if err != nil {
		return err
	}
	_, err = l.restore(ctx, connection, store.token)
	return err
}

// AgeJournal moves all times in the journal back by shift microseconds.
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

// JournalTimes replaces two journal times of an event: the beginning of its last post and its record as sent.
// The journal estimates both. Zero, or a time that the journal lacks, changes nothing.
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

// JournalMoved replaces the time from which an event's moved slots count with moved plus shift. If moved is
// zero, or the journal has no such time, it changes nothing.
func (l *Limiter) JournalMoved(request Request, moved, shift int64) {
	l.journal.change(request.member(), func(r *remembered) {
		if r.moved > 0 && moved > 0 {
			r.moved = moved + shift
		}
	})
}

// UseToken sets the token of the store that a limiter expects, as a healing does.
func (l *Limiter) UseToken(token string) { l.token.Store(&token) }
