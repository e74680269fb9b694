package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/internal/wait"
)

// Operators mute categories and set temporary limits under load and during faults. The audit
// distinguishes overrides that may have been in force for a worker from those that certainly were.

// followed bounds the time that a worker with a working Redis needs to apply an override. The product
// promises two seconds; the rest is for a busy machine.
const followed = 4 * time.Second

// given is an override set during this run. Each has a unique By, so a log line identifies it.
type given struct {
	steering.Order // Until is the time at which it expires
	limit          ratelimit.Limit
	// asked is before the first attempt. stored is the time of Redis's reply, zero if none came. ended is
	// before the override was cleared, or Until.
	asked, stored, ended time.Time
}

// maybe reports whether a worker may have applied the override at some time between from and to.
func (o given) maybe(from, to time.Time) bool {
	return o.asked.Before(to) && o.Until.Add(time.Second).After(from)
}

// orders collects the overrides of a run.
type orders struct {
	mu  sync.Mutex
	all []given
}

func (o *orders) add(g given) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, g)
}

// operators returns the lane that sets overrides.
func (d *deployment) operators() []injector {
	store, err := steering.NewStore(d.ledger.client, namespace)
	if err != nil {
		d.Fatal(err)
	}
	// Temporary limits keep the windows of the configured limits, because the audit compares tier by tier
	// and the ledger sees admissions only for the longest window.
	rest := strings.TrimPrefix(d.limits.global, "60/5s")
	billing := slices.Clone(d.ledger.rules.LimitFor("billing"))
	billing[0].Count, billing[1].Count = 10, 4
	by := func() string { return fmt.Sprintf("operator-%d@chaos", len(d.orders.all)) } // only one lane
	return []injector{
		{2, func(ctx context.Context, random *rand.Rand) {
			targets := []string{"alpha", "beta", "billing"}
			order, err := steering.NewMute(targets[random.IntN(len(targets))], by(), "")
			d.faults.complain(err)
			d.give(ctx, random, store, order, faultMute)
		}},
		{2, func(ctx context.Context, random *rand.Rand) {
			limits := [][2]string{
				{"global", "30/5s" + rest}, {"global", "90/5s" + rest}, {"category/alpha", "6/5s+2/200ms"},
				{"category/alpha", "20/5s+4/200ms"}, {"category/billing", billing.String()},
			}
			chosen := limits[random.IntN(len(limits))]
			order, err := steering.NewLimit(chosen[0], chosen[1], by(), "")
			d.faults.complain(err)
			d.give(ctx, random, store, order, faultTemporary)
		}},
	}
}

// give sets an override for some seconds, and clears it early half of the time.
func (d *deployment) give(ctx context.Context, random *rand.Rand, store *steering.Store, order steering.Order, kind string) {
	length, early := between(random, 6*time.Second, 9*time.Second), random.IntN(2) == 0
	g, stored := given{Order: order, asked: time.Now()}, steering.Order{}
	if order.Kind == steering.Limit {
		g.limit, _ = ratelimit.ParseLimit(order.Limit) // NewLimit has validated it
	}
	insist := func(attempt func() error) bool {
		for attempt() != nil {
			if !wait.For(ctx, 100*time.Millisecond) {
				return false
			}
		}
		return true
	}
	answered := insist(func() (err error) {
		stored, _, err = store.Set(ctx, order, length)
		return err
	})
	g.stored, g.Until, g.ended = time.Now(), stored.Until, stored.Until
	if !answered {
		g.stored, g.Until = time.Time{}, time.Now().Add(length)
	} else if early && wait.For(ctx, length*3/4) {
		g.ended = time.Now()
		insist(func() error {
			_, _, err := store.Clear(ctx, order.Kind, order.Target)
			return err
		})
	} else {
		wait.For(ctx, time.Until(stored.Until))
	}
	d.orders.add(g)
	d.faults.note(kind, order.Describe(), g.asked)
}

// follows returns the time from which a process certainly applied an override: its start, if it started
// later, or the end of a long enough time with access to Redis. surely is false if Redis never confirmed
// the override.
func (a *audit) follows(l *process, o given) (at time.Time, surely bool) {
	if o.stored.IsZero() {
		return time.Time{}, false
	}
	if l.started.After(o.stored) {
		return l.started, true
	}
	at = o.stored.Add(followed)
	for again := true; again; {
		again = false
		for _, f := range a.d.faults.faults {
			if a.keepsFromRedis(l, f) && f.when.overlaps(at.Add(-followed), at) {
				at, again = f.when.to.Add(followed), true
			}
		}
	}
	return at, true
}

// keepsFromRedis reports whether a fault may have kept a process from reading overrides.
func (a *audit) keepsFromRedis(l *process, f fault) bool {
	switch f.kind {
	case faultRedis, faultEmpty, faultFailover:
		return true
	case faultStop:
		return f.what == l.worker.name
	case faultCut, faultSlow:
		name := l.worker.name + "-redis"
		return f.what == name || len(f.what) > len(name) && f.what[:len(name)+1] == name+" "
	}
	return false
}

// mutes checks the events dropped as muted, and all others, against the mutes of this run.
func (a *audit) mutes() {
	for _, l := range a.settled {
		if e := a.events[l.EventID]; e != nil && l.muted() {
			a.byItsMute(e, l)
		}
	}
	for _, o := range a.d.orders.all {
		if o.Kind != steering.Mute {
			continue
		}
		for _, l := range a.settled {
			if l.refusedByLimit() {
				a.whileMuted(o, l.process, l.EventID, l.Time, "refused")
			}
		}
		for id, posts := range a.posts {
			for _, p := range posts {
				if l := a.processes[p.process]; l != nil {
					a.whileMuted(o, l, id, p.at, "posted")
				}
			}
		}
	}
}

// byItsMute checks that a line that says muted names a mute that may have been in force.
func (a *audit) byItsMute(e *event, l *line) {
	i := slices.IndexFunc(a.d.orders.all, func(o given) bool { return o.By == l.MutedBy && o.Kind == steering.Mute })
	switch {
	case i < 0:
		a.blame(e, "muted by nobody's order: %s", l)
	case a.d.orders.all[i].Target != e.category:
		a.blame(e, "muted by %s: %s", a.d.orders.all[i].Describe(), l)
	case !a.delayed(l) && !a.d.orders.all[i].maybe(a.mayHaveMuted(e, l), l.Time):
		a.blame(e, "muted when %s was not in force: %s", a.d.orders.all[i].Describe(), l)
	}
}

// mayHaveMuted returns the earliest time at which the decision behind a muted line may have been made.
// The line can be late: an event that may already be charged is refunded first, and the process waits for
// Redis indefinitely.
func (a *audit) mayHaveMuted(e *event, l *line) time.Time {
	from := l.Time.Add(-decisionAge)
	for again := true; again; {
		again = false
		for _, f := range a.d.faults.faults {
			earlier := f.when.from.Add(-decisionAge)
			if a.keepsFromRedis(l.process, f) && f.when.overlaps(from, l.Time) && earlier.Before(from) {
				from, again = earlier, true
			}
		}
	}
	if published := e.acks[0].at; from.Before(published) {
		return published
	}
	return from
}

// whileMuted blames a process that posted or refused an event during a mute of its category, although the
// event was published after the process had certainly applied that mute.
func (a *audit) whileMuted(o given, l *process, id string, at time.Time, what string) {
	e := a.events[id]
	if e == nil || !at.Before(o.ended) || !at.After(o.stored) || o.Target != e.category {
		return
	}
	if since, surely := a.follows(l, o); surely && e.acks[0].at.After(since) {
		a.blame(e, "%s by %s at %s, %s after it had followed the %s", what, l.name, clock(at), at.Sub(since), o.Describe())
	}
}

// mostAllowed returns a function that takes the times of a window's first and last admission, and returns
// the highest limit that may have been in force for a process between them. scope is written as in an
// override, such as category/alpha.
func (a *audit) mostAllowed(scope string, standing ratelimit.Limit, tier int) func(from, to int64) int {
	return func(first, last int64) int {
		from, to, most := time.UnixMicro(first), time.UnixMicro(last), 0
		if !a.allFollow(scope, from) || !a.allFollow(scope, to) {
			most = standing[tier].Count
		}
		for _, o := range a.d.orders.all {
			if o.Kind == steering.Limit && o.Target == scope && o.maybe(from, to) {
				most = max(most, o.limit[tier].Count)
			}
		}
		return most
	}
}

// allFollow reports whether certainly no process applied the configured limit of a scope at a time.
func (a *audit) allFollow(scope string, at time.Time) bool {
	return slices.ContainsFunc(a.d.orders.all, func(o given) bool {
		if o.Kind != steering.Limit || o.Target != scope || !at.After(o.stored) || !at.Before(o.ended) {
			return false
		}
		for _, k := range a.d.workers {
			for i, l := range k.processes {
				alive := l.started.Before(at) && (i+1 == len(k.processes) || k.processes[i+1].started.After(at))
				if since, surely := a.follows(l, o); alive && (!surely || !since.Before(at)) {
					return false
				}
			}
		}
		return true
	})
}
