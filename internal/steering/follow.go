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
	"notifier/internal/status/stats"
)

// Limits takes over the temporary limits; see ratelimit.Limiter.
type Limits interface {
	SetTemporary(limits ratelimit.Temporary)
}

// Follower knows what is in force, and applies it, in one replica. It is safe for concurrent use.
type Follower struct {
	store  *Store
	limits Limits
	log    *zap.Logger

	mu      sync.Mutex
	loaded  bool // the hash was read at least once
	known   State
	version int64 // that flushes bring back while known is up to date
	ends    *time.Timer
	stopped bool
	failing bool // the last attempt to follow has failed, and that is logged

	view atomic.Pointer[view]
}

// view is what is in force. It is immutable.
type view struct {
	orders  []Order // as State.Orders
	mutes   pattern.Table[*Order]
	version int64
	seen    time.Time // the clock of Redis, as it was
	at      time.Time // at this moment of our own
}

// now is the clock of Redis, as far as it is known.
func (v *view) now() time.Time { return v.seen.Add(time.Since(v.at)) }

// NewFollower returns a Follower that knows of nothing yet.
func NewFollower(store *Store, limits Limits, log *zap.Logger) *Follower {
	f := &Follower{store: store, limits: limits, log: log}
	f.view.Store(&view{})
	return f
}

// Load reads what is in force, once: at the start, before anything is decided. Errors are as for Store.Read.
func (f *Follower) Load(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded {
		return nil
	}
	err := f.catchUp(ctx)
	f.loaded = err == nil
	return err
}

// Follow takes over what a flush has brought back: the clock of Redis, and another version if there is one.
// What cannot be read is tried again with the next flush; until then everything stays as it is known.
func (f *Follower) Follow(ctx context.Context, flushed stats.Flushed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.loaded || f.stopped {
		return
	}
	if flushed.Version == f.version {
		f.apply(flushed.Now)
		return
	}
	err := f.catchUp(ctx)
	if err != nil {
		f.apply(flushed.Now)
	}
	if err != nil && !f.failing {
		f.log.Warn("mutes and limits cannot be followed", zap.Error(err),
			zap.Int64("version", flushed.Version))
	}
	f.failing = err != nil
	if err == nil && f.version == 0 {
		f.version = flushed.Version // one that nobody of us has written: it is not read again with each flush
	}
}

// catchUp reads the hash and applies it. If the store has lost what this replica knows, it is put back first;
// mu is held.
func (f *Follower) catchUp(ctx context.Context) error {
	state, err := f.store.Read(ctx)
	if err == nil && state.Version < f.known.Version {
		if err = f.putBack(ctx, f.store.redis, f.known); err == nil {
			state, err = f.store.Read(ctx)
		}
	}
	if err != nil {
		return err
	}
	if len(state.Invalid) > 0 {
		f.log.Warn("mutes or limits are not valid, and are skipped", zap.Strings("entries", state.Invalid))
	}
	f.known, f.version = state, state.Version
	f.apply(state.Now)
	return nil
}

// PutBack writes the hash as it was last read, through the client that is given, where the store has lost it.
// It may be repeated.
func (f *Follower) PutBack(ctx context.Context, client redis.Scripter) error {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	if known.Version == 0 {
		return nil
	}
	return f.putBack(ctx, client, known)
}

func (f *Follower) putBack(ctx context.Context, client redis.Scripter, known State) error {
	restored, err := f.store.putBack(ctx, client, known)
	if restored {
		f.log.Info("mutes and limits put back", zap.Int("orders", len(known.Orders)))
	}
	return err
}

// apply brings into force what is known, at a time of Redis's clock, and sets the timer for the next end; mu
// is held.
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

// refresh ends what has ended.
func (f *Follower) refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.apply(f.view.Load().now())
	}
}

// Stop ends the timer. What is in force stays so.
func (f *Follower) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.ends != nil {
		f.ends.Stop()
	}
}

// Muted reports whether events of a category are to be dropped, and by which mute: of several the most
// specific one.
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

// InForce are the orders in force, mutes first, and the version that they are of.
func (f *Follower) InForce() ([]Order, int64) {
	v := f.view.Load()
	return v.orders, v.version
}

// Count is how many mutes and how many limits are in force.
func (f *Follower) Count() (mutes, limits int) {
	v := f.view.Load()
	return v.mutes.Len(), len(v.orders) - v.mutes.Len()
}

// Temporary are the limits among orders.
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

// logChanges logs what has come into force, was changed or has ended.
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
