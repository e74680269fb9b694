package steering

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/stats"
)

// Limits takes over the limits for a while; see ratelimit.Limiter.
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
	version int64     // that flushes are to bring back while known is up to date
	seen    time.Time // the clock of Redis, as it was
	at      time.Time // at this moment of our own
	ends    *time.Timer
	stopped bool
	failing bool // the last attempt to follow has failed, and that is logged

	view  atomic.Pointer[view]
	muted chan struct{} // has a value when a mute has come into force
}

// view is what is in force. It is immutable.
type view struct {
	orders  []Order // as State.Orders
	mutes   pattern.Table[*Order]
	seen    time.Time // as in Follower
	at      time.Time
	version int64
}

// now is the clock of Redis, as far as it is known.
func (v *view) now() time.Time { return v.seen.Add(time.Since(v.at)) }

// NewFollower returns a Follower that knows of nothing yet.
func NewFollower(store *Store, limits Limits, log *zap.Logger) *Follower {
	f := &Follower{store: store, limits: limits, log: log, muted: make(chan struct{}, 1)}
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
	state, err := f.store.Read(ctx)
	if err != nil {
		return err
	}
	f.take(state)
	f.version = state.Version
	return nil
}

// Follow takes over what a flush has brought back: the clock of Redis, and another version if there is one. What cannot be read
// is tried again with the next flush; until then everything stays as it is known.
func (f *Follower) Follow(ctx context.Context, flushed stats.Flushed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.loaded || f.stopped {
		return
	}
	f.seen, f.at = flushed.Now, time.Now()
	if flushed.Version == f.version {
		f.apply()
		return
	}
	err := f.catchUp(ctx)
	if err == nil { // what was read: if it was put back and is lost again, the next flush brings back the same as this one
		f.version = cmp.Or(f.known.Version, flushed.Version)
	}
	if err != nil && !f.failing {
		f.log.Warn("mutes and limits cannot be followed", zap.Error(err), zap.Int64("version", flushed.Version))
	}
	f.failing = err != nil
}

// catchUp reads the hash, and puts back what the store has lost.
func (f *Follower) catchUp(ctx context.Context) error {
	state, err := f.store.Read(ctx)
	if err != nil {
		return err
	}
	if f.hasLost(state) {
		restored, err := f.store.putBack(ctx, f.store.redis, f.known)
		if err != nil {
			return err
		}
		if restored {
			f.log.Info("mutes and limits put back", zap.Int("orders", len(f.known.fields)))
		}
		if state, err = f.store.Read(ctx); err != nil {
			return err
		}
	}
	f.take(state)
	return nil
}

// hasLost reports whether the store does not have what it had: an older version of the same hash, or another hash while orders
// of the known one are in force.
func (f *Follower) hasLost(state State) bool {
	if state.born == f.known.born {
		return state.Version < f.known.Version
	}
	now := state.Now
	return slices.ContainsFunc(f.known.Orders, func(o Order) bool {
		return o.Until.After(now) && state.fields[o.field()] == ""
	})
}

// PutBack writes the hash as it was last read, through the client that is given, where the store has lost it. It may be repeated.
func (f *Follower) PutBack(ctx context.Context, client redis.Scripter) error {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	if known.Version == 0 {
		return nil
	}
	_, err := f.store.putBack(ctx, client, known)
	return err
}

// take applies what was read; mu is held.
func (f *Follower) take(state State) {
	if len(state.Invalid) > 0 {
		f.log.Warn("mutes or limits are not valid, and are skipped", zap.Strings("entries", state.Invalid))
	}
	f.known, f.loaded = state, true
	f.seen, f.at = state.Now, time.Now()
	f.apply()
}

// apply brings into force what is known, as of now, and looks again when the next of it ends; mu is held.
func (f *Follower) apply() {
	before := f.view.Load()
	next := &view{seen: f.seen, at: f.at, version: f.known.Version}
	now := next.now()
	mutes := map[string]*Order{}
	var soonest time.Time
	for _, o := range f.known.Orders {
		if !o.Until.After(now) {
			continue
		}
		next.orders = append(next.orders, o)
		if o.Kind == Mute {
			mutes[o.Target] = &o
		}
		if soonest.IsZero() || o.Until.Before(soonest) {
			soonest = o.Until
		}
	}
	if slices.EqualFunc(before.orders, next.orders, sameOrder) { // as mostly: then the table is the same
		next.mutes = before.mutes
	} else {
		next.mutes = pattern.MustTable(mutes) // the patterns are checked
		f.limits.SetTemporary(Temporary(next.orders))
	}
	f.view.Store(next)
	f.logChanges(before.orders, next.orders)
	if f.ends != nil {
		f.ends.Stop()
		f.ends = nil
	}
	if !soonest.IsZero() && !f.stopped {
		f.ends = time.AfterFunc(max(soonest.Sub(now), time.Millisecond), f.refresh)
	}
}

// refresh ends what has ended.
func (f *Follower) refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.apply()
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

// Muted reports whether events of a category are to be dropped, and by which mute: of several the most specific one.
func (f *Follower) Muted(category string) (mute *Order, muted bool) {
	v := f.view.Load()
	if v.mutes.Len() == 0 {
		return nil, false
	}
	o, _, found := v.mutes.Find(category)
	if found && !o.Until.After(v.now()) { // it has just ended, and a less specific one may hold
		f.refresh()
		v = f.view.Load()
		o, _, found = v.mutes.Find(category)
		found = found && o.Until.After(v.now())
	}
	return o, found
}

// NewMutes has a value after a mute has come into force.
func (f *Follower) NewMutes() <-chan struct{} { return f.muted }

// InForce are the orders in force, mutes first, and the version that they are of.
func (f *Follower) InForce() ([]Order, int64) {
	v := f.view.Load()
	return v.orders, v.version
}

// Count is how many mutes and how many limits are in force.
func (f *Follower) Count() (mutes, limits int) {
	orders, _ := f.InForce()
	for _, o := range orders {
		if o.Kind == Mute {
			mutes++
		}
	}
	return mutes, len(orders) - mutes
}

// Temporary are the limits among orders.
func Temporary(orders []Order) ratelimit.Temporary {
	limits := ratelimit.Temporary{Groups: map[string]ratelimit.Limit{}, Categories: map[string]ratelimit.Limit{}}
	for _, o := range orders {
		if o.Kind != Limit {
			continue
		}
		switch scope, _ := ParseScope(o.Target); { // it is checked
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

func sameOrder(a, b Order) bool {
	return a.Kind == b.Kind && a.Target == b.Target && a.Limit == b.Limit && a.By == b.By && a.Reason == b.Reason &&
		a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
}

// logChanges logs what has come into force, was changed or has ended.
func (f *Follower) logChanges(before, after []Order) {
	old := map[string]Order{}
	for _, o := range before {
		old[o.field()] = o
	}
	for _, o := range after {
		was, known := old[o.field()]
		delete(old, o.field())
		if known && sameOrder(was, o) {
			continue
		}
		if o.Kind == Mute {
			f.log.Info("mute is in force", o.fields()...)
			select {
			case f.muted <- struct{}{}:
			default:
			}
		} else {
			f.log.Info("limit for a while is in force", o.fields()...)
		}
	}
	for _, o := range before {
		if _, over := old[o.field()]; !over {
			continue
		}
		if o.Kind == Mute {
			f.log.Info("mute is over", o.fields()...)
		} else {
			f.log.Info("limit for a while is over", o.fields()...)
		}
	}
}

// fields are those of a log line.
func (o Order) fields() []zap.Field {
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
