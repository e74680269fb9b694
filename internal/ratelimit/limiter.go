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

	"notifier/lua"
)

// MaxBatch is how many requests Admit decides at most: Lua can pass only a few thousand values to one Redis
// command.
const MaxBatch = 1000

// Limiter decides through Redis. It is safe for concurrent use. All state is in Redis, but for what it
// remembers of its admissions to put it back into a store that has forgotten them.
type Limiter struct {
	redis redis.UniversalClient
	keys  keys

	standing Rules
	dedupe   time.Duration
	plan     atomic.Pointer[plan] // each call takes it once

	lag atomic.Int64 // see ClockLag

	replica string // names this process to other replicas, see NewHealer
	journal journal
	healer  atomic.Pointer[Healer] // nil: none
	token   atomic.Pointer[string] // of the store that may decide; nil: any store

	admit, begin, answered, pauses, sent, refund, peeked *redis.Script
}

// New returns a Limiter that uses an open client.
//
// namespace prefixes every key. dedupe is how long an id that was sent counts as a duplicate: 1 ms or more.
// The rules have to be valid, as ParseLimit and ParseOverrides return them.
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
	l := &Limiter{
		redis:    client,
		keys:     names,
		standing: rules,
		dedupe:   dedupe,
		admit:    redis.NewScript(lua.Admit),
		begin:    redis.NewScript(lua.Begin),
		answered: redis.NewScript(lua.Answered),
		pauses:   redis.NewScript(lua.Pauses),
		sent:     redis.NewScript(lua.Sent),
		refund:   redis.NewScript(lua.Refund),
		peeked:   redis.NewScript(lua.Peek),
	}
	l.plan.Store(newPlan(rules, Temporary{}, dedupe))
	return l, nil
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// Request is the question whether one event may be sent.
type Request struct {
	ID       string // the event's id, of any length; it counts within the category
	Source   string // what its id counts together with, of any length; empty: its id counts alone
	Delivery string // identifies the stream message that carries it; the same at each redelivery
	Category string
	Cost     int // slots it takes, 1 to Rules.MaxCost
}

// Admit decides a batch of at most MaxBatch requests in order and returns one Decision for each. It may be
// repeated with the same requests after any error: what was admitted gets the same answer again and is
// charged once.
//
// An error means that there are no decisions: Redis is unavailable, refuses the call (read-only, out of
// memory, no permission) or sends a reply that the script never returns; the batch is too long, or a request
// has no cost.
func (l *Limiter) Admit(ctx context.Context, batch []Request) (decisions []Decision, err error) {
	if len(batch) > MaxBatch {
		return nil, fmt.Errorf("a batch of %d events, expected at most %d", len(batch), MaxBatch)
	}
	for _, request := range batch {
		if request.Cost < 1 { // it would pass every limit and be charged to none
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
	epoch, token := l.journal.begin(), l.knownToken()
	q := l.newAdmitCall(batch, token)
	answer, err := l.call(ctx, q, batch)
	if err != nil {
		return nil, err
	}
	l.lag.Store(int64(answer.lag))
	if !l.remember(q, batch, answer, epoch) {
		return nil, ErrHealing // the answer may be from a store that has been lost since
	}
	return answer.decisions, nil
}

// call runs admit.lua once.
func (l *Limiter) call(ctx context.Context, q admitCall, batch []Request) (admitReply, error) {
	reply, err := l.admit.Run(ctx, l.redis, q.keyNames, q.arguments...).Result()
	if err != nil {
		return admitReply{}, fmt.Errorf("redis: cannot decide: %w", l.explain(ctx, err, q.keyNames))
	}
	answer, err := q.decode(reply, batch)
	if err != nil && !errors.Is(err, ErrHealing) {
		return admitReply{}, fmt.Errorf("redis: unexpected reply from admit.lua: %w", err)
	}
	return answer, err
}

// DryRun decides about one event of a category as Admit would now, and writes nothing. An empty category stands
// for one that has sent nothing and has no reserve: only the global limit can refuse it. DryRun decides only about
// limits: the event is never a duplicate. Redis may be out of memory or read-only.
//
// An error means that there is no decision, as for Admit. If a store has lost admissions, DryRun returns
// ErrHealing at once, while Admit waits for the replicas to restore them.
func (l *Limiter) DryRun(ctx context.Context, category string, cost int) (Decision, error) {
	if cost < 1 {
		return Decision{}, fmt.Errorf("a cost of %d slots, expected 1 or more", cost)
	}
	batch := []Request{{Category: category, Cost: cost}}
	answer, err := l.call(ctx, l.newDryRun(batch, l.knownToken()), batch)
	if err != nil {
		return Decision{}, err
	}
	return answer.decisions[0], nil
}

// ClockLag is how far the clock of Redis was behind the newest admission at the last decision: above 0 only
// after that clock was set back. Until it has caught up, the windows stand still and no slot becomes free.
func (l *Limiter) ClockLag() time.Duration { return time.Duration(l.lag.Load()) }

// Sent records that an event is in Slack: its id is a duplicate from then on, for the dedupe window. Errors
// are as for Admit; repeating the call is harmless.
func (l *Limiter) Sent(ctx context.Context, request Request) error {
	keyNames := []string{l.keys.meta(), l.keys.inFlight(), l.keys.sent()}
	// First: it is in Slack, even if recording that fails.
	l.journal.isSent(request.member(), indexEntry(request.Category, sourceName(request.Source)))
	err := l.onKnownStore(ctx, func() error {
		reply, err := l.sent.Run(ctx, l.redis, keyNames, request.member(), micros(l.dedupe),
			l.knownToken()).Result()
		if err != nil {
			return l.explain(ctx, err, keyNames)
		}
		return checkWord(reply, "recorded")
	})
	if err != nil {
		return fmt.Errorf("redis: cannot record %q as sent: %w", request.ID, err)
	}
	return nil
}

// Refund releases the slots of an event that was admitted for this delivery and that is not in Slack. known
// is the name of its last post whose end the caller knows; empty: none. It reports whether it has released
// anything: not where there is nothing to release, so that repeating the call releases nothing twice, nor
// after a later post than the known one. Errors are as for Admit.
func (l *Limiter) Refund(ctx context.Context, request Request, known string) (bool, error) {
	return l.release(ctx, request, request.Cost, known)
}

// Forfeit ends an event in flight that is not in Slack and gets no refund: its slots stay taken, and its id
// is free again. All else is as for Refund.
func (l *Limiter) Forfeit(ctx context.Context, request Request, known string) (bool, error) {
	return l.release(ctx, request, 0, known)
}

// release ends an event in flight, and releases so many of its slots: all, or none.
func (l *Limiter) release(ctx context.Context, request Request, slots int, known string) (bool, error) {
	keyNames := []string{l.keys.meta(), l.keys.inFlight()}
	for _, log := range []string{l.keys.global(), l.keys.category(request.Category),
		l.keys.group(GroupOf(request.Category))} {
		keyNames = append(keyNames, l.keys.bothForms(log)...)
	}
	member := request.member()
	keepsSlots, word := slots == 0, ""
	err := l.onKnownStore(ctx, func() error {
		epoch, token := l.journal.begin(), l.knownToken()
		reply, err := l.refund.Run(ctx, l.redis, keyNames, member, request.Delivery,
			strconv.Itoa(slots), known, token).Result()
		if err != nil {
			if !errors.Is(err, ErrHealing) {
				// The slots may have been given back. Until that is asked again nothing is posted, so they
				// are not put back.
				l.journal.mayBeRefunded(member, keepsSlots)
			}
			return l.explain(ctx, err, keyNames)
		}
		if word, err = replyWord(reply); err == nil && word == "refunded" &&
			!l.journal.refunded(epoch, member, keepsSlots) {
			return ErrHealing // the slots may have been put back meanwhile
		}
		return err
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("redis: cannot refund %q: %w", request.ID, err)
	case word == "refunded":
		return true, nil
	case word != "nothing":
		return false, fmt.Errorf("redis: unexpected reply from refund.lua: %q, expected refunded or nothing",
			word)
	}
	return false, nil
}

// Ready runs the script on an empty batch. It returns nil if Redis can decide now, else an error as for
// Admit.
func (l *Limiter) Ready(ctx context.Context) error {
	_, err := l.admitOnce(ctx, nil)
	if h := l.healer.Load(); h != nil && errors.Is(err, ErrHealing) {
		h.wake()
	}
	return err
}

// MinRedisVersion is the oldest version of Redis that can run the scripts.
const MinRedisVersion = "7.0"

// ErrUnsuitable marks errors that waiting does not fix: Redis is too old, or forbids scripts.
var ErrUnsuitable = errors.New("this Redis cannot serve as the limiter's store")

// Check is Ready, and also checks whether this Redis is usable at all: its version and the permission to run
// scripts. An error that wraps ErrUnsuitable is permanent. While the store is healed it waits for that, for
// some seconds.
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
			return fmt.Errorf("%w: it is version %s, expected %s or newer", ErrUnsuitable, version,
				MinRedisVersion)
		}
	}
	err = l.Ready(ctx)
	if forbidden(err) {
		return fmt.Errorf("%w: %v; expected a user that may run EVALSHA and EVAL on %s*", ErrUnsuitable, err,
			l.keys.prefix)
	}
	return err
}

// forbidden reports whether the user lacks a permission: Redis has one error for a command and another for a
// command that a script calls.
func forbidden(err error) bool {
	return err != nil && (redis.IsPermissionError(err) || strings.Contains(err.Error(), "NOPERM") ||
		strings.Contains(err.Error(), "can't run this command"))
}

// version is empty if the server does not report it: the embedded store has no such section in INFO.
func (l *Limiter) version(ctx context.Context) (string, error) {
	info, err := l.redis.Info(ctx, "server").Result()
	switch {
	case err == nil:
		for _, line := range strings.Split(info, "\n") {
			if version, found := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); found {
				return version, nil
			}
		}
		return "", nil
	case strings.Contains(err.Error(), "NOPERM"), strings.Contains(err.Error(), "not supported"):
		return "", nil
	default:
		return "", err
	}
}
