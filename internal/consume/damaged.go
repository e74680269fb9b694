package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
	"notifier/internal/wait"
)

// A category whose key in Redis is of another type is not decided: nobody knows what it has used. Its events are given back to
// the server for a while, and wait in their lanes where that is not possible. Those of other categories go on until such events
// are all that the worker may hold: then it is not ready, and goes on when the server takes some back, or the key is removed.
//
// In core mode no server keeps them. They may take a quarter of the room; what is beyond that is lost, and so are all of them
// before an event of another category is.

// damagedRetry is the time between two attempts to decide such an event.
var damagedRetry = 5 * time.Second

// damagedShare: in core mode they have one part in so many of what a worker may hold, in number and in bytes.
const damagedShare = 4

// errGivenBack ends an event's way here: the server delivers it again.
var errGivenBack = errors.New("it was given back to the server")

// damagedCategories are the keys of categories that could not be decided, when that was seen last, and how many events of
// theirs are in flight.
type damagedCategories struct {
	mu     sync.Mutex
	seen   map[string]time.Time
	latest string // the key that was seen last
	held   int
	bytes  int64
	losing bool // core mode: others need the room of all that are held
}

// see notes that a category could not be decided.
func (c *damagedCategories) see(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]time.Time{}
	}
	c.seen[key], c.latest = time.Now(), key
}

// recovered forgets the categories that nobody has found damaged for three attempts, and reports whether those were the last.
func (c *damagedCategories) recovered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.seen)
	for key, seen := range c.seen {
		if time.Since(seen) > 3*damagedRetry {
			delete(c.seen, key)
		}
	}
	return before > 0 && len(c.seen) == 0
}

// hold counts an event that waits in its lane.
func (c *damagedCategories) hold(a *admitted) { c.count(a, true) }

// release counts it no more. It may be called for any event.
func (c *damagedCategories) release(a *admitted) { c.count(a, false) }

func (c *damagedCategories) count(a *admitted, held bool) {
	if a.undecided == held {
		return
	}
	a.undecided = held
	c.mu.Lock()
	defer c.mu.Unlock()
	if held {
		c.held++
		c.bytes += a.delivery.cost
	} else {
		c.held--
		c.bytes -= a.delivery.cost
	}
	c.losing = c.losing && c.held > 0
}

// lose has all that are held lost, each at its next attempt, and reports whether there are any.
func (c *damagedCategories) lose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losing = c.held > 0
	return c.losing
}

// mayHold reports whether one more event may be held in core mode; of one that is held, whether it may stay.
func (c *damagedCategories) mayHold(a *admitted, f *inflight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.undecided {
		return !c.losing
	}
	return !c.losing && c.held < max(1, f.capacity/damagedShare) && c.bytes+a.delivery.cost <= f.budget/damagedShare
}

// undecided reports that a category's key is damaged.
func (w *Worker) undecided(decision ratelimit.Decision) {
	w.damaged.see(decision.Key)
	w.availability.impaired(redisKey, ratelimit.DamagedKey{Key: decision.Key})
}

// setAside keeps an event that could not be decided.
func (w *Worker) setAside(a admitted, decision ratelimit.Decision) {
	w.undecided(decision)
	if !w.giveBack(&a, decision.Key) {
		w.damaged.hold(&a)
		w.enqueue(a) // it is asked about again when it has its turn
	}
}

// stillUndecided is what follows where an event could not be decided when it had its turn. Nothing of it is charged: the script
// answers so only where it knows of no admission.
func (w *Worker) stillUndecided(p *posting, decision ratelimit.Decision) *result {
	w.undecided(decision)
	if w.tooOld(p.event) {
		w.damaged.release(&p.admitted)
		p.settled.Outcome, p.settled.Reason = outcome.Dropped, outcome.Expired
		return endWith(recordNothing)
	}
	if mute := w.muteOf(p.event); mute != nil {
		w.damaged.release(&p.admitted)
		p.settled.Outcome, p.settled.Reason, p.settled.Mute = outcome.Dropped, outcome.Muted, mute
		return endWith(recordNothing)
	}
	begun := p.name != "" || p.last != "" || p.unsure // whoever got it next would not know how its post has ended
	if !begun && w.giveBack(&p.admitted, decision.Key) {
		w.damaged.release(&p.admitted)
		return endWith(func(context.Context, *posting) error { return errGivenBack })
	}
	w.damaged.hold(&p.admitted)
	return &result{wait: wait.Jitter(damagedRetry)}
}

// giveBack gives an event that could not be decided back to the server, and reports whether it is no longer in flight. In core
// mode it is lost where there is no room for it.
func (w *Worker) giveBack(a *admitted, key string) bool {
	core, isCore := w.source.(*coreSource)
	if !isCore {
		return w.source.park(a.delivery, wait.Jitter(damagedRetry))
	}
	if w.damaged.mayHold(a, w.inflight) {
		return false
	}
	core.loseUndecided(a.delivery, key)
	return true
}

// tooOld reports whether an event is older than EVENT_MAX_AGE.
func (w *Worker) tooOld(e event.Event) bool {
	return w.settings.MaxAge > 0 && time.Since(e.Time) > w.settings.MaxAge
}

// stoppedByDamage is why the worker can read no more; nil: it can, or most of what fills it waits for something else.
func (w *Worker) stoppedByDamage() error {
	w.damaged.mu.Lock()
	held, key := w.damaged.held, w.damaged.latest
	w.damaged.mu.Unlock()
	if !w.inflight.full() || 2*held < w.inflight.size() {
		return nil
	}
	return fmt.Errorf("%w; no room is left beside %s of such categories, and the stream takes none back: %s",
		ratelimit.DamagedKey{Key: key}, term.Count(held, "event"), w.parkingRefused())
}

// parkingRefused is why the source takes nothing back.
func (w *Worker) parkingRefused() string {
	return cmp.Or(w.source.parkingExhausted(), "it does not answer at the moment")
}
