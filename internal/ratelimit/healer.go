package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/term"
)

const (
	healLook     = 500 * time.Millisecond // how often the store is looked at without a reason
	healRetry    = 50 * time.Millisecond  // between two attempts to heal
	healPoll     = 20 * time.Millisecond  // between two questions whether the other replicas are done
	healPatience = 5 * time.Second        // how long a call waits for the healing before it fails
	healWait     = 1300 * time.Millisecond
	strangerWait = time.Second // more than healLook, after which all others have noticed
	healRemind   = time.Minute // how often the same trouble is logged
)

// Healing is how a replica heals a store.
type Healing struct {
	Replica string          // this replica's name, as Peers of the others have it
	Peers   func() []string // the replicas that were alive within the last seconds, this one included; empty: it is not known which
	Log     *zap.Logger
	PutBack []func(context.Context, *redis.Conn) error // what else is to be put back; each is repeated until it succeeds
	Healed  func(missing []string)                     // is called whenever a store has been healed, with the replicas that were waited for in vain; may be nil
}

// Healer puts back what a Limiter remembers into a store that may have forgotten it, before anything new is decided there.
type Healer struct {
	limiter *Limiter
	guard   *Guard
	config  Healing
	wakes   chan struct{}

	mu     sync.Mutex
	healed *server       // the server whose store has been healed; nil: none has
	done   chan struct{} // is closed once it has been
	off    bool          // there is no healing: the user may not ask which store it is
	times  int           // how many times a store was healed
	warned time.Time
}

// NewHealer returns a healer of the store that a limiter uses through the guard's client. From now on nothing is decided before
// Run has healed the store.
func NewHealer(l *Limiter, guard *Guard, config Healing) (*Healer, error) {
	if config.Replica == "" || strings.ContainsAny(config.Replica, " \r\n") {
		return nil, fmt.Errorf("replica %q, expected a name without blanks", config.Replica)
	}
	h := &Healer{limiter: l, guard: guard, config: config, wakes: make(chan struct{}, 1), done: make(chan struct{})}
	if h.config.Log == nil {
		h.config.Log = zap.NewNop()
	}
	l.journal.start(l.plan.Load().remembers)
	l.unhealed()
	l.healer.Store(h)
	guard.healer.Store(h)
	return h, nil
}

// Run heals the store whenever it is another one than before, until ctx ends.
func (h *Healer) Run(ctx context.Context) {
	var client redis.UniversalClient
	leave := func() {
		if client != nil {
			_ = client.Close() // nothing is written that counts
			client = nil
		}
	}
	defer leave()
	for retry := healRetry; ctx.Err() == nil; {
		err := error(nil)
		if client == nil {
			client, err = h.guard.open()
		}
		if err == nil {
			err = h.look(ctx, client)
		}
		pause := healLook
		if err != nil {
			h.warn(ctx, err)
			leave() // the next one looks up the primary again
			pause, retry = retry, min(2*retry, healLook)
		} else {
			retry = healRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-h.wakes:
			leave()
		}
	}
}

// wake lets Run look at the store now, and calls that fail wait for that.
func (h *Healer) wake() {
	h.mu.Lock()
	h.doubt()
	h.mu.Unlock()
	select {
	case h.wakes <- struct{}{}:
	default:
	}
}

// warn logs that a store cannot be healed, once a minute.
func (h *Healer) warn(ctx context.Context, err error) {
	if ctx.Err() != nil || time.Since(h.warned) < healRemind {
		return
	}
	h.warned = time.Now()
	h.config.Log.Warn("cannot look at what Redis has forgotten", zap.Error(err))
}

// check lets a new connection pass if nothing is forgotten at its other end.
func (h *Healer) check(ctx context.Context, connection *redis.Conn) error {
	found, err := askServer(ctx, connection)
	switch {
	case errors.Is(err, errNoInfo):
		return nil // Run finds out, too
	case err != nil:
		return err
	case found.replica:
		return errReplica
	}
	h.mu.Lock()
	passes := h.off || found.noStore || h.healed != nil && *h.healed == found
	h.mu.Unlock()
	if passes {
		return nil
	}
	// The other masters of a Cluster have none of our keys. Should one get them, the mark in the register differs.
	if err := connection.ZScore(ctx, h.limiter.keys.register(), healedMark).Err(); err != nil && strings.HasPrefix(err.Error(), "MOVED ") {
		return nil
	}
	h.wake()
	return ErrHealing
}

const healedMark = " healed" // in the register

// wait waits until the store is healed, and reports whether it is.
func (h *Healer) wait(ctx context.Context) bool {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	timer := time.NewTimer(healPatience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// look heals the store if it is not the one that was healed last.
func (h *Healer) look(ctx context.Context, client redis.UniversalClient) error {
	connection, err := h.connect(ctx, client)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	found, err := askServer(ctx, connection)
	switch {
	case errors.Is(err, errNoInfo):
		h.giveUp()
		return nil
	case err != nil:
		return err
	case found.replica:
		return errReplica
	}
	h.mu.Lock()
	same := h.healed != nil && *h.healed == found
	h.mu.Unlock()
	if same {
		agreed, err := h.agree(ctx, connection, "look", found, "0")
		if err != nil {
			return err
		}
		if agreed.state == healed {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.finish()
			return nil
		}
	}
	return h.heal(ctx, connection, found)
}

// connect is a connection to the server that has our keys, without the check.
func (h *Healer) connect(ctx context.Context, client redis.UniversalClient) (*redis.Conn, error) {
	switch client := client.(type) {
	case *redis.Client:
		return client.Conn(), nil
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, h.limiter.keys.register())
		if err != nil {
			return nil, err
		}
		return node.Conn(), nil
	default:
		return nil, fmt.Errorf("unknown kind of client %T", client)
	}
}

// giveUp lets everything pass: without INFO nobody knows which store it is.
func (h *Healer) giveUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.off {
		return
	}
	h.off = true
	h.limiter.number.Store(nil)
	h.finish()
	h.config.Log.Warn("what Redis forgets in a failover or a restart is not put back: the user may not run INFO; see docs/security.md")
}

// finish lets those go on who wait; mu is held.
func (h *Healer) finish() {
	select {
	case <-h.done:
	default:
		close(h.done)
	}
}

// begin lets nothing be decided until finish.
func (h *Healer) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healed, h.off = nil, false
	h.limiter.unhealed()
	h.doubt()
}

// doubt lets those wait who ask whether the store is healed; mu is held.
func (h *Healer) doubt() {
	select {
	case <-h.done:
		h.done = make(chan struct{})
	default:
	}
}

// heal puts back what this replica remembers, waits for the others, and lets calls go on.
func (h *Healer) heal(ctx context.Context, connection *redis.Conn, found server) error {
	started := time.Now()
	h.begin()
	begun, err := h.agree(ctx, connection, "begin", found, "0")
	if err != nil {
		return err
	}
	tally, err := h.limiter.putBack(ctx, connection)
	if err != nil {
		return err
	}
	for _, putBack := range h.config.PutBack {
		if err := putBack(ctx, connection); err != nil {
			return err
		}
	}
	if again, err := askServer(ctx, connection); err != nil || again != found {
		return errors.Join(errAnother, err)
	}
	missing, err := h.await(ctx, connection, found, begun.round)
	if err != nil {
		return err
	}
	if h.config.Healed != nil {
		h.config.Healed(missing)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healed = &found
	h.times++
	number := found.number()
	h.limiter.number.Store(&number)
	h.finish()
	h.report(tally, missing, time.Since(started))
	return nil
}

// errAnother is why what was put back may be gone already.
var errAnother = errors.New("redis: the store was replaced or emptied while it was healed")

// report logs what was put back. The first time nothing has been forgotten: this replica has only just begun.
func (h *Healer) report(tally putBackTally, missing []string, took time.Duration) {
	size, pushed := h.limiter.journal.size()
	fields := []zap.Field{
		zap.Int64("slots", tally.Slots), zap.Int64("in_flight", tally.InFlight), zap.Int64("sent", tally.Sent),
		zap.Int("remembered", size), zap.Float64("took_s", term.Seconds(took)),
	}
	if pushed > 0 {
		fields = append(fields, zap.Uint64("no_longer_remembered", pushed))
	}
	switch {
	case len(missing) > 0:
		h.config.Log.Warn("Redis may have forgotten what replicas that did not answer had admitted: as much may be sent once more, the limit at most",
			append(fields, zap.Strings("did_not_answer", missing))...)
	case h.times > 1:
		h.config.Log.Info("put back what Redis had forgotten", fields...)
	default:
		h.config.Log.Debug("Redis has what is known", fields...)
	}
}
