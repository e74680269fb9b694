package ratelimit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/term"
)

const (
	healLook     = 500 * time.Millisecond // interval of looking at the store
	healRetry    = 50 * time.Millisecond  // backoff after a failure; it doubles
	healRetryMax = 200 * time.Millisecond
	healPoll     = 100 * time.Millisecond // interval of looking at a closed store
	healPatience = 5 * time.Second        // bounds the wait of a call for the healing
	healRemind   = time.Minute            // interval of repeating a warning

	// A store without a known token stays closed for healQuarantine, and twice as long in addition as the
	// worker that names it took to reach it. Every running worker notices within that time and starts to
	// restore: it exceeds healLook, an attempt to reach a silent host and a pause together. Each restoring call
	// adds healMore, until healMax after the loss.
	healQuarantine = 1500 * time.Millisecond
	healMore       = 500 * time.Millisecond
	healMax        = 30 * time.Second

	maxHealings = 20 // attempts of a call that finds the store closed
)

// One call of restore.lua restores about this many admissions or slots, which takes Redis a few milliseconds.
const (
	restoreChunk = 500
	chunkSlots   = 10 * restoreChunk
)

// errHealing is the error of a call while workers restore a store. The call may be repeated. It wraps
// nothing, because go-redis unwraps errors of a connection's check.
var errHealing = errors.New(
	"redis: this store may have forgotten admissions: workers are restoring those that they remember")

// unseen is the error of a call while a worker cannot look at the store that it would restore.
type unseen struct{ reason error }

func (u unseen) Error() string { return u.reason.Error() }

func (u unseen) Unwrap() []error { return []error{errHealing, u.reason} }

var (
	errReplica = errors.New(
		"redis: connected to a Redis replica, which takes no writes; the primary is looked up again")
	errAnother = errors.New("redis: the store was replaced or emptied while it was healed")
)

// Guard checks each new connection of a client, so that a store of another generation decides nothing before
// it is healed. Without a Healer, it accepts every connection.
type Guard struct {
	healer atomic.Pointer[Healer]
	open   func() (redis.UniversalClient, error) // a second client of the same servers, without a guard
}

// OpenGuarded is Open for a worker. Calls time out after half a second, and the Guard checks new connections.
// The pool has room for this number of concurrent posts, besides other calls.
func OpenGuarded(rawURL string, tlsConfig *tls.Config, posts int) (redis.UniversalClient, *Guard, error) {
	guard := &Guard{open: func() (redis.UniversalClient, error) {
		return open(rawURL, tlsConfig, healerPatience, nil)
	}}
	client, err := open(rawURL, tlsConfig, workerPatience(posts), guard.check)
	if err != nil {
		return nil, nil, err
	}
	return client, guard, nil
}

func (g *Guard) check(ctx context.Context, connection *redis.Conn) error {
	if h := g.healer.Load(); h != nil {
		return h.check(ctx, connection)
	}
	return nil
}

// server describes the server at the other end of a connection.
type server struct {
	noStore    bool // a Sentinel, which go-redis queries through the same options
	replica    bool
	generation string // changes when a primary starts or is promoted. Empty for the embedded store.
}

func askServer(ctx context.Context, connection redis.Cmdable) (server, error) {
	info, err := Info(ctx, connection, "replication")
	if err != nil || info == nil {
		return server{}, err
	}
	role, found := info["role"]
	return server{noStore: !found, replica: role == "slave", generation: info["master_replid"]}, nil
}

// MarkHealed marks a store that the caller has just created as complete. Otherwise the first worker would
// wait for other workers to restore it.
func MarkHealed(ctx context.Context, client *redis.Client, namespace string) error {
	names, err := newKeys(namespace)
	if err != nil {
		return err
	}
	found, err := askServer(ctx, client)
	if err != nil || found.generation == "" {
		return err
	}
	c := quarantineCall(names, found.generation, 0)
	return scripts[c.script].Run(ctx, client, c.keys, c.arguments...).Err()
}

// Healing configures a Healer.
type Healing struct {
	Replica string // unique name of this worker, without blanks
	Log     *zap.Logger

	// Restore restores further state of the store. The Healer repeats it until it succeeds. It may be nil.
	Restore func(context.Context, *redis.Conn) error
}

// Healer restores the admissions of a Limiter into a store that may have lost them, before that store
// decides.
type Healer struct {
	limiter *Limiter
	guard   *Guard
	config  Healing
	wakes   chan struct{}

	mu     sync.Mutex
	healed *server       // nil until a store is healed
	done   chan struct{} // closed while the store is healed
	off    bool          // healing is impossible, see giveUp
	failed error         // of the last look. Nil if that succeeded
	times  int           // healed stores
	warned time.Time

	settingsSeen time.Time // used by Run alone, as is warned
}

// NewHealer returns a Healer of the store that the Limiter uses through the guard's client. From now on the
// Limiter decides nothing until Run has healed the store. It returns an error if the name of the worker is
// invalid.
func NewHealer(l *Limiter, guard *Guard, config Healing) (*Healer, error) {
	if config.Replica == "" || strings.ContainsAny(config.Replica, " \r\n") {
		return nil, fmt.Errorf("worker %q, expected a name without blanks", config.Replica)
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

// Run heals every new store until ctx is done.
func (h *Healer) Run(ctx context.Context) {
	var client redis.UniversalClient
	leave := func() {
		if client != nil {
			_ = client.Close() // no write is pending
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
		h.note(err)
		if err == nil && time.Since(h.settingsSeen) >= healRemind {
			h.lookAtSettings(ctx, client)
		}
		pause := healLook
		if err != nil {
			h.warn(ctx, err)
			leave() // the next client looks up the primary again
			pause, retry = retry, min(2*retry, healRetryMax)
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

// lookAtSettings looks for settings by which the server loses admissions. It reports no errors.
func (h *Healer) lookAtSettings(ctx context.Context, client redis.UniversalClient) {
	connection, err := h.connect(ctx, client)
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	memory, err := Info(ctx, connection, "memory")
	if err != nil {
		return
	}
	isFirst := h.settingsSeen.IsZero()
	h.settingsSeen = time.Now()
	eviction := Eviction(memory)
	h.limiter.eviction.Store(&eviction)
	if _, single := client.(*redis.Client); !single || !isFirst {
		return
	}
	if server, err := Info(ctx, connection, "server"); err == nil && IsClusterNode(server) {
		h.config.Log.Warn(OneNodeWarning)
	}
}

// note keeps the result of a look.
func (h *Healer) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = err
}

// why returns the reason of errHealing.
func (h *Healer) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil || errors.Is(h.failed, errAnother) {
		return errHealing
	}
	return unseen{h.failed}
}

// wake makes Run look at the store at once, and failing calls wait for the result.
func (h *Healer) wake() {
	h.mu.Lock()
	h.doubt()
	h.mu.Unlock()
	select {
	case h.wakes <- struct{}{}:
	default:
	}
}

func (h *Healer) warn(ctx context.Context, err error) {
	if ctx.Err() != nil || time.Since(h.warned) < healRemind {
		return
	}
	h.warned = time.Now()
	h.config.Log.Warn("cannot look at what Redis has forgotten", zap.Error(err))
}

// check accepts a new connection if its store is healed.
func (h *Healer) check(ctx context.Context, connection *redis.Conn) error {
	found, err := askServer(ctx, connection)
	switch {
	case isNoInfo(err):
		return nil // Run gives up as well
	case err != nil:
		return err
	}
	h.mu.Lock()
	passes := h.off || found.noStore || h.healed != nil && *h.healed == found
	isFirst := h.healed == nil
	h.mu.Unlock()
	if passes && !found.replica {
		return nil
	}
	err = connection.HGet(ctx, h.limiter.keys.meta(), "token").Err()
	isElsewhere := err != nil && strings.HasPrefix(err.Error(), "MOVED ")
	switch {
	case found.replica && isElsewhere && isFirst:
		// All nodes in the URL of a Cluster may be replicas by now, and go-redis has to find the primaries
		// through one. No calls are made there, so the pool drops the connection before long.
		return nil
	case found.replica:
		return errReplica
	case isElsewhere: // another primary of a Cluster; if it gets our keys, its token will differ
		return nil
	}
	h.wake()
	return errHealing
}

// wait waits for the healing, up to healPatience, and reports whether the store is healed.
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

// look heals the store unless it is healed already.
func (h *Healer) look(ctx context.Context, client redis.UniversalClient) error {
	looked := time.Now()
	connection, err := h.connect(ctx, client)
	if err != nil {
		return cannotLook(err)
	}
	defer func() { _ = connection.Close() }()
	found, err := askServer(ctx, connection)
	switch {
	case isNoInfo(err):
		h.giveUp(err.Error() + "; see docs/security.md")
		return nil
	case err != nil:
		return cannotLook(err)
	case found.replica:
		return errReplica
	case found.generation == "":
		h.giveUp("the server does not name its generation (master_replid)")
		return nil
	}
	store, err := h.quarantine(ctx, connection, found, healQuarantine+2*time.Since(looked))
	if err != nil {
		return err
	}
	if h.knows(found, store.token) {
		if err := sleep(ctx, store.left); err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finish()
		return nil
	}
	return h.heal(ctx, connection, found, store)
}

func cannotLook(err error) error { return fmt.Errorf("redis: cannot look at the store: %w", err) }

// knows reports whether this worker has healed the store.
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

// quarantine identifies the store. A store that may have lost admissions gets a new token and is closed for
// that long.
func (h *Healer) quarantine(
	ctx context.Context, connection *redis.Conn, found server, closed time.Duration,
) (quarantined, error) {
	c := quarantineCall(h.limiter.keys, found.generation, closed)
	store, err := run(ctx, h.limiter, connection, c, decodeQuarantine)
	if err != nil {
		return quarantined{}, cannotLook(err)
	}
	return store, nil
}

// connect returns an unguarded connection to the server with our keys.
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

// giveUp accepts every store, because stores cannot be told apart.
func (h *Healer) giveUp(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish() // each time, because a wake may have made calls wait since
	if h.off {
		return
	}
	h.off = true
	h.limiter.token.Store(nil)
	h.config.Log.Warn("what Redis forgets in a failover or a restart is not restored: " + why)
}

// finish releases waiting calls. The caller holds mu.
func (h *Healer) finish() {
	select {
	case <-h.done:
	default:
		close(h.done)
	}
}

// doubt makes calls wait until finish. The caller holds mu.
func (h *Healer) doubt() {
	select {
	case <-h.done:
		h.done = make(chan struct{})
	default:
	}
}

// begin stops all decisions until finish.
func (h *Healer) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healed, h.off = nil, false
	h.limiter.forgetStore()
	h.doubt()
}

// heal restores the admissions of this worker, waits until the store opens, and releases waiting calls.
func (h *Healer) heal(ctx context.Context, connection *redis.Conn, found server, store quarantined) error {
	started := time.Now()
	h.begin()
	tally, err := h.limiter.restore(ctx, connection, store.token)
	if err != nil {
		return err
	}
	if h.config.Restore != nil {
		if err := h.config.Restore(ctx, connection); err != nil {
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
		now, err := h.quarantine(ctx, connection, found, healQuarantine)
		if err != nil {
			return err
		}
		if now.token != store.token {
			return errAnother
		}
		left = now.left
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.healed = &found
	h.times++
	h.limiter.token.Store(&store.token)
	h.finish()
	h.report(tally, time.Since(started), store.left == 0)
	return nil
}

// report logs a healing. It is late if the store was open before. The first healing is routine: the worker
// has just started.
func (h *Healer) report(tally restored, took time.Duration, late bool) {
	size, evicted := h.limiter.journal.size()
	fields := []zap.Field{
		zap.Int64("slots", tally.slots), zap.Int64("in_flight", tally.inFlight),
		zap.Int64("sent", tally.sent), zap.Int("remembered", size), zap.Float64("took_s", term.Seconds(took)),
	}
	if evicted > 0 {
		fields = append(fields, zap.Uint64("no_longer_remembered", evicted))
	}
	switch {
	case late && tally.slots > 0:
		h.config.Log.Warn(
			"restored what Redis had forgotten after it was open again: as many slots may have been given twice",
			fields...)
	case h.times > 1:
		h.config.Log.Info("restored what Redis had forgotten", fields...)
	default:
		h.config.Log.Debug("Redis has what is known", fields...)
	}
}

// restore writes the journal, the oldest admissions first. It returns errAnother if the store has a new
// token.
func (l *Limiter) restore(ctx context.Context, connection *redis.Conn, token string) (restored, error) {
	var sum restored
	entries := l.journal.all()
	slices.SortStableFunc(entries, func(a, b remembered) int { return cmp.Compare(a.at, b.at) })
	for len(entries) > 0 {
		n := chunkLength(entries)
		c := l.restoreCall(l.plan.Load(), token, entries[:n])
		tally, err := run(ctx, l, connection, c, decodeRestored)
		if err != nil {
			return sum, fmt.Errorf("redis: cannot restore admissions: %w", err)
		}
		if !tally.known {
			return sum, errAnother
		}
		sum.slots += tally.slots
		sum.inFlight += tally.inFlight
		sum.sent += tally.sent
		entries = entries[n:]
	}
	return sum, nil
}

// chunkLength returns the length of the next chunk. It does not separate admissions of one time, because
// restore.lua needs those in one call.
func chunkLength(entries []remembered) int {
	slots := 0
	for i, r := range entries {
		full := i >= restoreChunk || slots >= chunkSlots
		if full && r.at != entries[i-1].at || i >= MaxBatch+restoreChunk {
			return i
		}
		slots += int(r.cost)
	}
	return len(entries)
}

// knownToken returns the token of the store that may decide.
func (l *Limiter) knownToken() string {
	if token := l.token.Load(); token != nil {
		return *token
	}
	return anyStore
}

// forgetStore rejects every store, and every reply that is under way.
func (l *Limiter) forgetStore() {
	token := noStore
	l.token.Store(&token)
	l.journal.nextEpoch()
}

// onKnownStore makes a call, and repeats it after errHealing once the store is healed. Without a Healer, it
// makes the call once.
func (l *Limiter) onKnownStore(ctx context.Context, call func() error) error {
	for attempt := 1; ; attempt++ {
		err := call()
		h := l.healer.Load()
		if h == nil || !errors.Is(err, errHealing) {
			return err
		}
		h.wake()
		if attempt == maxHealings || !h.wait(ctx) {
			return h.why()
		}
	}
}
