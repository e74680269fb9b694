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
	"notifier/lua"
)

const (
	healLook     = 500 * time.Millisecond // how often the store is looked at without a reason
	healRetry    = 50 * time.Millisecond  // between two attempts to heal; it doubles
	healRetries  = 200 * time.Millisecond // up to this
	healPoll     = 100 * time.Millisecond // between two looks at a store that is closed
	healPatience = 5 * time.Second        // how long a call waits for the healing before it fails
	healRemind   = time.Minute            // how often the same trouble is logged

	// How long a store stays closed that has lost its token. All replicas that run notice it within that time,
	// and have begun to put back: it is longer than healLook, and than an attempt to reach a host that does
	// not answer, and a pause. Each call that puts something back adds healMore, up to healMost after the
	// loss.
	healQuarantine = 1500 * time.Millisecond
	healMore       = 500 * time.Millisecond
	healMost       = 30 * time.Second
)

// Healing is how a replica heals a store.
type Healing struct {
	Replica string // names this replica; no other may have the name
	Log     *zap.Logger

	// PutBack puts back what else there is. Each is repeated until it succeeds.
	PutBack []func(context.Context, *redis.Conn) error
}

// Healer puts back what a Limiter remembers into a store that may have forgotten it, before anything new is
// decided there.
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

// NewHealer returns a healer of the store that a limiter uses through the guard's client. From now on nothing
// is decided before Run has healed the store.
func NewHealer(l *Limiter, guard *Guard, config Healing) (*Healer, error) {
	if config.Replica == "" || strings.ContainsAny(config.Replica, " \r\n") {
		return nil, fmt.Errorf("replica %q, expected a name without blanks", config.Replica)
	}
	l.replica = config.Replica
	h := &Healer{
		limiter: l, guard: guard, config: config,
		wakes: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if h.config.Log == nil {
		h.config.Log = zap.NewNop()
	}
	l.journal.start(l.plan.Load().remembers)
	l.forgetStore()
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
			pause, retry = retry, min(2*retry, healRetries)
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
	// The other masters of a Cluster have none of our keys. Should one get them, its token differs.
	if err := connection.HGet(ctx, h.limiter.keys.meta(), "token").Err(); err != nil &&
		strings.HasPrefix(err.Error(), "MOVED ") {
		return nil
	}
	h.wake()
	return ErrHealing
}

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
		h.giveUp("the user may not run INFO; see docs/security.md")
		return nil
	case err != nil:
		return err
	case found.replica:
		return errReplica
	case found.generation == "":
		h.giveUp("the server does not name its generation (master_replid)")
		return nil
	}
	token, left, err := h.quarantine(ctx, connection, found)
	if err != nil {
		return err
	}
	if h.knows(found, token) {
		if err := sleep(ctx, left); err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finish()
		return nil
	}
	return h.heal(ctx, connection, found, token, left == 0)
}

// knows reports whether this replica has put back what it remembers into the store with this token.
func (h *Healer) knows(found server, token string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.healed != nil && *h.healed == found && h.limiter.knownToken() == token
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var quarantineScript = redis.NewScript(lua.Quarantine)

// quarantine returns the token of the store, and how long it stays closed. A store that may have forgotten
// something gets a new token, and is closed.
func (h *Healer) quarantine(
	ctx context.Context, connection *redis.Conn, found server,
) (token string, left time.Duration, err error) {
	keyNames := []string{h.limiter.keys.meta()}
	reply, err := quarantineScript.Run(ctx, connection, keyNames, found.generation, micros(healQuarantine),
		micros(healMost)).Result()
	if err != nil {
		return "", 0, fmt.Errorf("redis: cannot look at the store: %w", h.limiter.explain(ctx, err, keyNames))
	}
	fields, err := list(reply, "reply", 2)
	if err != nil {
		return "", 0, fmt.Errorf("redis: unexpected reply from quarantine.lua: %w", err)
	}
	token, isText := fields[0].(string)
	wait, err := number(fields[1], "wait")
	if err != nil || !isText || wait < 0 || span(wait) > healMost {
		return "", 0, fmt.Errorf(
			"redis: unexpected reply from quarantine.lua: %v, expected a token and a time up to %s",
			fields, healMost)
	}
	return token, span(wait), nil
}

// connect is a connection to the server that has our keys, without the check.
func (h *Healer) connect(ctx context.Context, client redis.UniversalClient) (*redis.Conn, error) {
	switch client := client.(type) {
	case *redis.Client:
		return client.Conn(), nil
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, h.limiter.keys.meta())
		if err != nil {
			return nil, err
		}
		return node.Conn(), nil
	default:
		return nil, fmt.Errorf("unknown kind of client %T", client)
	}
}

// giveUp lets everything pass: nobody can know which store it is.
func (h *Healer) giveUp(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish() // also if it was given up before: a connection that was checked meanwhile lets calls wait
	if h.off {
		return
	}
	h.off = true
	h.limiter.token.Store(nil)
	h.config.Log.Warn("what Redis forgets in a failover or a restart is not put back: " + why)
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
	h.limiter.forgetStore()
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

// heal puts back what this replica remembers, waits until the store opens, and lets calls go on. late: the
// store is open already.
func (h *Healer) heal(
	ctx context.Context, connection *redis.Conn, found server, token string, late bool,
) error {
	started := time.Now()
	h.begin()
	tally, err := h.limiter.putBack(ctx, connection, token)
	if err != nil {
		return err
	}
	for _, putBack := range h.config.PutBack {
		if err := putBack(ctx, connection); err != nil {
			return err
		}
	}
	for left := healPoll; left > 0; {
		if err := sleep(ctx, min(left, healPoll)); err != nil {
			return err
		}
		again, err := askServer(ctx, connection)
		if err != nil || again != found {
			return errors.Join(errAnother, err)
		}
		var now string
		if now, left, err = h.quarantine(ctx, connection, found); err != nil {
			return err
		}
		if now != token {
			return errAnother
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healed = &found
	h.times++
	h.limiter.token.Store(&token)
	h.finish()
	h.report(tally, time.Since(started), late)
	return nil
}

// errAnother is why what was put back may be gone already.
var errAnother = errors.New("redis: the store was replaced or emptied while it was healed")

// report logs what was put back. The first time nothing has been forgotten: this replica has only just begun.
func (h *Healer) report(tally putBackTally, took time.Duration, late bool) {
	size, pushed := h.limiter.journal.size()
	fields := []zap.Field{
		zap.Int64("slots", tally.Slots), zap.Int64("in_flight", tally.InFlight),
		zap.Int64("sent", tally.Sent),
		zap.Int("remembered", size), zap.Float64("took_s", term.Seconds(took)),
	}
	if pushed > 0 {
		fields = append(fields, zap.Uint64("no_longer_remembered", pushed))
	}
	switch {
	case late && tally.Slots > 0:
		h.config.Log.Warn(
			"put back what Redis had forgotten after it was open again: as many slots may have been given twice",
			fields...)
	case h.times > 1:
		h.config.Log.Info("put back what Redis had forgotten", fields...)
	default:
		h.config.Log.Debug("Redis has what is known", fields...)
	}
}
