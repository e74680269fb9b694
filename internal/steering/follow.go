package steering

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
)

// Limits applies temporary limits. ratelimit.Limiter implements it.
type Limits interface {
	SetTemporary(limits ratelimit.Temporary)
}

// Follower applies the overrides in one worker. It is safe for concurrent use.
type Follower struct {
	store  *Store
	limits Limits
	log    *zap.Logger

	mu      sync.Mutex
	loaded  bool // the hash was read at least once
	known   State
	ends    *time.Timer
	stopped bool
	failing bool // the last attempt to read the hash failed, and that is logged. Only Run uses it

	view atomic.Pointer[view]
}

// view holds the overrides in force. It is immutable.
type view struct {
	orders  []Order // as State.Orders
	mutes   pattern.Table[*Order]
	version int64
	seen    time.Time // Redis's clock
	at      time.Time // our own at the same moment
}

// now estimates Redis's clock.
func (v *view) now() time.Time { return v.seen.Add(time.Since(v.at)) }

// NewFollower returns a Follower without overrides.
func NewFollower(store *Store, limits Limits, log *zap.Logger) *Follower {
	f := &Follower{store: store, limits: limits, log: log}
	f.view.Store(&view{})
	return f
}

// Load reads the hash once, at the start, before the worker decides about events. Errors are as for Store.Read.
func (f *Follower) Load(ctx context.Context) error {
	if _, follows := f.current(); follows {
		return nil
	}
	return f.catchUp(ctx)
}

// current returns the last reading, and whether the worker follows: from Load until Stop.
func (f *Follower) current() (known State, follows bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known, f.loaded && !f.stopped
}

const (
	pollEvery   = time.Second
	pollTimeout = 2 * time.Second // then the next poll tries again
)

// Run follows the hash until ctx is done. The overrides in force stay in force then; see Stop. While Redis is
// unavailable it keeps the ones it knows, and logs nothing: the worker logs the outage.
func (f *Follower) Run(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		f.poll(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// poll reads the clock, and the hash if its version has changed. It does nothing before Load. Only Run calls
// it.
func (f *Follower) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	now, version, err := f.store.poll(ctx)
	known, follows := f.current()
	if err != nil || !follows {
		return
	}
	if version != known.version {
		err = f.catchUp(ctx)
		if err != nil && !f.failing {
			f.log.Warn("mutes and limits cannot be followed", zap.Error(err))
		}
		f.failing = err != nil
	}
	if version == known.version || err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.apply(now)
	}
}

// catchUp reads the hash and applies it. If the store has lost the version that this worker knows, catchUp
// restores it first. It waits for Redis without mu, which the pipeline needs when a mute ends. Load and Run do
// not call it at the same time.
func (f *Follower) catchUp(ctx context.Context) error {
	known, _ := f.current()
	state, err := f.store.Read(ctx)
	if err == nil && state.Version < known.Version {
		if err = f.restore(ctx, f.store.redis, known); err == nil {
			state, err = f.store.Read(ctx)
		}
	}
	if err != nil {
		return err
	}
	if len(state.Invalid) > 0 {
		f.log.Warn("mutes or limits are not valid, and are skipped", zap.Strings("entries", state.Invalid))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.loaded = state, true
	f.apply(state.Now)
	return nil
}

// Restore writes the hash as it was last read, through the given client, if the store has lost it. Repeating
// it is harmless.
func (f *Follower) Restore(ctx context.Context, client redis.Scripter) error {
	known, _ := f.current()
	if known.Version == 0 {
		return nil
	}
	return f.restore(ctx, client, known)
}

func (f *Follower) restore(ctx context.Context, client redis.Scripter, known State) error {
	restored, err := f.store.restore(ctx, client, known)
	if restored {
		f.log.Info("mutes and limits restored", zap.Int("orders", len(known.Orders)))
	}
	return err
}

// apply brings the known overrides into force as of a time of Redis's clock, and sets the timer for the next
// end. mu is held.
func (f *Follower) apply(now time.Time) {
	before := f.view.Load()
	next := &view{mutes: before.mutes, version: f.known.Version, seen: now, at: time.Now()}
	next.orders = f.known.InForce(now, Mute, Limit)
	if !slices.EqualFunc(before.orders, next.orders, sameOrder) {
		next.mutes = muteTable(next.orders)
		f.limits.SetTemporary(Temporary(next.orders))
	}
	f.view.Store(next)
	f.logChanges(before.orders, next.orders)
	if f.ends != nil {
		f.ends.Stop()
	}
	if len(next.orders) > 0 && !f.stopped {
		soonest := slices.MinFunc(next.orders, func(a, b Order) int { return a.Until.Compare(b.Until) })
		f.ends = time.AfterFunc(max(soonest.Until.Sub(now), time.Millisecond), f.refresh)
	}
}

func muteTable(orders []Order) pattern.Table[*Order] {
	mutes := map[string]*Order{}
	for _, o := range orders {
		if o.Kind == Mute {
			mutes[o.Target] = &o
		}
	}
	return pattern.MustTable(mutes) // the patterns are checked
}

// refresh drops the overrides that have ended.
func (f *Follower) refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.apply(f.view.Load().now())
	}
}

// Stop stops the timer. The overrides in force stay in force.
func (f *Follower) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.ends != nil {
		f.ends.Stop()
	}
}

// Muted reports whether events of a category are dropped, and the most specific mute that drops them.
func (f *Follower) Muted(category string) (mute *Order, muted bool) {
	v := f.view.Load()
	o, _, found := v.mutes.Find(category)
	if found && !o.Until.After(v.now()) { // it has just ended, and a less specific one may hold
		f.refresh()
		v = f.view.Load()
		o, _, found = v.mutes.Find(category)
		found = found && o.Until.After(v.now())
	}
	return o, found
}

// InForce returns the orders in force, mutes first, and their version.
func (f *Follower) InForce() ([]Order, int64) {
	v := f.view.Load()
	return v.orders, v.version
}

// Temporary returns the limits among orders.
func Temporary(orders []Order) ratelimit.Temporary {
	limits := ratelimit.Temporary{
		Groups: map[string]ratelimit.Limit{}, Categories: map[string]ratelimit.Limit{},
		Ends: ratelimit.Ends{},
	}
	for _, o := range orders {
		if o.Kind != Limit {
			continue
		}
		scope, _ := ParseScope(o.Target) // it is checked
		limits.Ends[scope] = o.Until
		switch {
		case scope.Group != "":
			limits.Groups[scope.Group] = o.limit
		case scope.Category != "":
			limits.Categories[scope.Category] = o.limit
		default:
			limits.Global = o.limit
		}
	}
	return limits
}

func sameOrder(a, b Order) bool { return a.field() == b.field() && a.value == b.value }

// logChanges logs overrides that began, changed or ended.
func (f *Follower) logChanges(before, after []Order) {
	was, is := byField(before), byField(after)
	for _, o := range after {
		switch {
		case was[o.field()].value == o.value:
		case o.Kind == Limit:
			f.log.Info("temporary limit is in force", o.logFields()...)
		default:
			f.log.Info("mute is in force", o.logFields()...)
		}
	}
	for _, o := range before {
		switch _, goesOn := is[o.field()]; {
		case goesOn:
		case o.Kind == Limit:
			f.log.Info("temporary limit is over", o.logFields()...)
		default:
			f.log.Info("mute is over", o.logFields()...)
		}
	}
}

func byField(orders []Order) map[string]Order {
	fields := make(map[string]Order, len(orders))
	for _, o := range orders {
		fields[o.field()] = o
	}
	return fields
}

func (o Order) logFields() []zap.Field {
	var fields []zap.Field
	if o.Kind == Mute {
		fields = append(fields, zap.String("pattern", o.Target))
	} else {
		fields = append(fields, zap.String("scope", o.Target), zap.String("limit", o.Limit))
	}
	fields = append(fields, zap.Time("until", o.Until), zap.String("by", o.By))
	if o.Reason != "" {
		fields = append(fields, zap.String("reason", o.Reason))
	}
	return fields
}
