package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/term"
)

// MaxBatch bounds the requests of one Admit call. Lua can pass only a few thousand values to a Redis command.
const MaxBatch = 1000

// Limiter decides through Redis. It is safe for concurrent use. Redis holds all state; the Limiter remembers
// its own admissions only to restore them into a store that has lost them.
type Limiter struct {
	redis redis.UniversalClient
	keys  keys

	standing Rules
	dedupe   time.Duration
	plan     atomic.Pointer[plan] // each call loads it once

	lag      atomic.Int64          // see ClockLag
	eviction atomic.Pointer[error] // see Evicts. Nil before the first look of the Healer.

	replica string // see Healing
	journal journal
	healer  atomic.Pointer[Healer]
	token   atomic.Pointer[string] // of the store that may decide. Nil accepts any store.
}

// New returns a Limiter that uses an open client.
//
// The namespace prefixes every key; see ValidateNamespace. An event counts as a duplicate for dedupe, at
// least 1 ms, after it was sent. The rules must consist of valid limits, as ParseLimit returns them.
func New(
	client redis.UniversalClient, namespace string, rules Rules, dedupe time.Duration,
) (*Limiter, error) {
	names, err := newKeys(namespace)
	if err != nil {
		return nil, err
	}
	if dedupe < time.Millisecond {
		return nil, fmt.Errorf("dedupe window %s, expected 1ms or more", dedupe)
	}
	for _, limit := range rules.limits() {
		if len(limit) == 0 {
			return nil, errors.New("a limit without a tier, expected " + limitBounds.form)
		}
	}
	l := &Limiter{redis: client, keys: names, standing: rules, dedupe: dedupe}
	l.plan.Store(newPlan(rules, Temporary{}, dedupe))
	return l, nil
}

// SetTemporary replaces all temporary limits for later calls; the zero Temporary removes them. The limits
// must be valid, as ParseLimit returns them.
func (l *Limiter) SetTemporary(limits Temporary) {
	p := newPlan(l.standing, limits, l.dedupe)
	l.journal.keepFor(p.remembers)
	l.plan.Store(p)
}

// Rules returns the rules in force, with temporary limits.
func (l *Limiter) Rules() Rules { return l.plan.Load().rules }

// Request describes one event to be decided.
type Request struct {
	ID       string // of any length, unique within Category and Source
	Source   string // of any length. May be empty.
	Delivery string // names the stream message of the event; redeliveries keep it
	Category string
	Cost     int // slots, 1 to Rules.MaxCost
}

// Admit decides up to MaxBatch requests in order and returns one Decision for each. After any error it may be
// repeated with the same requests: an admitted event is admitted again and charged once.
//
// An error means that nothing was decided. Redis is unavailable, refuses the call (read-only, out of memory,
// no permission) or sends an invalid reply; the batch is too long; or a request costs less than 1.
func (l *Limiter) Admit(ctx context.Context, batch []Request) (decisions []Decision, err error) {
	if len(batch) > MaxBatch {
		return nil, fmt.Errorf("a batch of %d events, expected at most %d", len(batch), MaxBatch)
	}
	for _, request := range batch {
		if request.Cost < 1 { // every limit would admit it free of charge
			return nil, fmt.Errorf("event %q costs %d slots, expected 1 or more", request.ID, request.Cost)
		}
	}
	err = l.onKnownStore(ctx, func() error {
		decisions, err = l.admitOnce(ctx, batch)
		return err
	})
	return decisions, err
}

func (l *Limiter) admitOnce(ctx context.Context, batch []Request) ([]Decision, error) {
	epoch, token := l.journal.currentEpoch(), l.knownToken()
	c := l.newAdmitCall(batch, token)
	reply, err := l.decide(ctx, c)
	if err != nil {
		return nil, err
	}
	if !l.remember(c, reply, epoch) {
		return nil, errHealing // the reply may come from a store that was lost since
	}
	return reply.decisions, nil
}

func (l *Limiter) decide(ctx context.Context, c admitCall) (admitReply, error) {
	reply, err := run(ctx, l, l.redis, c.call, c.decode)
	if err != nil && !errors.Is(err, errHealing) {
		err = fmt.Errorf("redis: cannot decide: %w", err)
	}
	if err == nil {
		l.lag.Store(int64(reply.lag))
	}
	return reply, err
}

// DryRun returns the decision about a new event that Admit would make now, and writes nothing. The cost is in
// slots, at least 1. An empty category stands for one without slots taken and without a reservation, so only
// the global limit can refuse it. Redis may be read-only or out of memory.
//
// Errors are as for Admit, but DryRun does not wait while a store is being healed.
func (l *Limiter) DryRun(ctx context.Context, category string, cost int) (Decision, error) {
	if cost < 1 {
		return Decision{}, fmt.Errorf("a cost of %d slots, expected 1 or more", cost)
	}
	reply, err := l.decide(ctx, l.newDryRun(Request{Category: category, Cost: cost}, l.knownToken()))
	if err != nil {
		return Decision{}, err
	}
	return reply.decisions[0], nil
}

// ClockLag returns how far the clock of Redis was behind the newest admission at the last decision. It is
// positive only after the clock was set back. Until the clock has caught up, no slot becomes free.
func (l *Limiter) ClockLag() time.Duration { return time.Duration(l.lag.Load()) }

// grossStep is the smallest step back of Redis's clock that is an error: time synchronization makes smaller
// ones.
const grossStep = time.Second

// StandsStill returns an error if no slot becomes free, because the clock of Redis was behind the newest
// admission at the last decision. It names the command with which an operator sets the slots ahead free.
func (l *Limiter) StandsStill() error {
	lag := l.ClockLag()
	if lag < grossStep {
		return nil
	}
	return fmt.Errorf("the clock of Redis is %s behind the newest admission: no slot becomes free until it catches "+
		"up. If it is right now, run HDEL %s clock", term.ShortDuration(lag.Round(time.Second)), l.keys.meta())
}

// Evicts returns an error if Redis forgets admissions when it is full. Only a Healer finds out.
func (l *Limiter) Evicts() error {
	if eviction := l.eviction.Load(); eviction != nil {
		return *eviction
	}
	return nil
}

// Sent records that an event is in Slack. Its id is a duplicate for the dedupe window from then on. Errors
// are as for Admit; the call may be repeated.
func (l *Limiter) Sent(ctx context.Context, request Request) error {
	// Before the call, because the event is in Slack even if the call fails.
	l.journal.recordSent(request.member(), indexEntry(request.Category, sourceName(request.Source)))
	err := l.onKnownStore(ctx, func() error {
		moved, err := run(ctx, l, l.redis, l.sentCall(request), decodeSent)
		l.journal.recordMove(request.member(), moved)
		return err
	})
	if err != nil {
		return fmt.Errorf("redis: cannot record %q as sent: %w", request.ID, err)
	}
	return nil
}

// Refund releases the slots of an event that was admitted for this stream message and is not in Slack.
// lastPost names the last post with a result known to the caller. It is empty before the first post. Refund
// reports whether it released anything. It releases nothing twice, and nothing if a later post has begun.
// Errors are as for Admit.
func (l *Limiter) Refund(ctx context.Context, request Request, lastPost string) (bool, error) {
	return l.release(ctx, request, request.Cost, lastPost)
}

// Forfeit is Refund without releasing the slots: the event leaves the events in flight, and its id is free
// again.
func (l *Limiter) Forfeit(ctx context.Context, request Request, lastPost string) (bool, error) {
	return l.release(ctx, request, 0, lastPost)
}

// release ends an event in flight. Zero slots keeps all of them taken.
func (l *Limiter) release(ctx context.Context, request Request, slots int, lastPost string) (bool, error) {
	member, keepsSlots, word := request.member(), slots == 0, ""
	err := l.onKnownStore(ctx, func() (err error) {
		epoch, token := l.journal.currentEpoch(), l.knownToken()
		c := l.refundCall(request, slots, lastPost, token)
		word, err = run(ctx, l, l.redis, c, decodeWord("refunded", "nothing"))
		switch {
		case errors.Is(err, errHealing):
		case err != nil:
			// The script may have run. The caller repeats the call before any post, so do not restore the
			// slots.
			l.journal.recordPossibleRefund(member, keepsSlots)
		case word == "refunded" && !l.journal.recordRefund(epoch, member, keepsSlots):
			return errHealing // a healer may have restored the slots meanwhile
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("redis: cannot refund %q: %w", request.ID, err)
	}
	return word == "refunded", nil
}

// Ready decides an empty batch. It returns nil if Redis can decide now, otherwise an error as for Admit.
func (l *Limiter) Ready(ctx context.Context) error {
	_, err := l.admitOnce(ctx, nil)
	if h := l.healer.Load(); h != nil && errors.Is(err, errHealing) {
		h.wake()
		return h.why()
	}
	return err
}

// MinRedisVersion is the oldest version of Redis that can run the scripts.
const MinRedisVersion = "7.0"

// ErrUnsuitable marks errors that waiting does not fix: Redis is too old, or forbids scripts.
var ErrUnsuitable = errors.New("this Redis cannot serve as the limiter's store")

// Check extends Ready by the version of Redis and the permission to run scripts. An error that wraps
// ErrUnsuitable is permanent. Check waits up to a few seconds while a store is being healed.
func (l *Limiter) Check(ctx context.Context) error {
	return l.onKnownStore(ctx, func() error { return l.checkOnce(ctx) })
}

func (l *Limiter) checkOnce(ctx context.Context) error {
	version, err := l.version(ctx)
	if err != nil {
		return err
	}
	if major, _, _ := strings.Cut(version, "."); version != "" {
		if number, err := strconv.Atoi(major); err != nil || number < 7 {
			return fmt.Errorf("%w: it is version %s, expected %s or newer",
				ErrUnsuitable, version, MinRedisVersion)
		}
	}
	err = l.Ready(ctx)
	if forbidden(err) {
		return fmt.Errorf("%w: %v; expected a user that may run EVALSHA and EVAL on %s*", ErrUnsuitable, err,
			l.keys.prefix)
	}
	return err
}

// forbidden reports whether the user lacks a permission. Redis words the error differently for a command that
// a script calls.
func forbidden(err error) bool {
	return err != nil && (redis.IsPermissionError(err) || strings.Contains(err.Error(), "NOPERM") ||
		strings.Contains(err.Error(), "can't run this command"))
}

// version returns "" if the server does not report its version. The embedded store does not.
func (l *Limiter) version(ctx context.Context) (string, error) {
	info, err := Info(ctx, l.redis, "server")
	if isNoInfo(err) {
		return "", nil
	}
	return info["redis_version"], err
}
