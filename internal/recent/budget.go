package recent

import (
	"strings"
	"sync"
	"time"
)

// What a worker records at most. Each kind of outcome, a category and a reason, has a budget of its own, so that a storm of one
// does not displace the others.
const (
	perSecond     = 100 // outcomes of all kinds
	burst         = 200
	kindPerSecond = 2
	kindBurst     = 20
	mostKinds     = 2048             // whose budgets are kept apart; publishers choose the names of categories
	kindIdle      = 10 * time.Minute // a kind is forgotten after that
	pruneEvery    = time.Second
)

// budget decides what is recorded, and counts what is left out. Of each kind it keeps the latest outcome that was left out, and
// offers it when there is room: so the last of a storm is recorded, with the number of those before.
type budget struct {
	mu      sync.Mutex
	all     bucket
	kinds   map[kind]*tally
	many    tally  // all kinds that are too many
	waiting int    // tallies with a latest outcome
	others  uint64 // left out, of kinds that are forgotten or too many
	leftOut uint64 // for ever
	pruned  time.Time
	filled  chan struct{} // has room for one; a first latest outcome waits
}

type kind struct{ category, outcome, reason string }

// tally is what is known of one kind.
type tally struct {
	bucket
	leftOut uint64 // since the last that was recorded, latest not counted
	waits   bool
	latest  Outcome
}

// bucket holds tokens. The zero bucket is full.
type bucket struct {
	used float64 // tokens that are missing
	at   time.Time
}

// missing is how many tokens the bucket lacks at now.
func (b *bucket) missing(now time.Time, rate float64) float64 {
	if elapsed := now.Sub(b.at).Seconds(); elapsed > 0 {
		b.used = max(0, b.used-elapsed*rate)
		b.at = now
	}
	return b.used
}

func newBudget() *budget { return &budget{kinds: map[kind]*tally{}, filled: make(chan struct{}, 1)} }

// waits reports whether there is an outcome that was left out and can be recorded when there is room.
func (b *budget) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting > 0
}

// take reports whether an outcome may be recorded. If so, it sets the number of those that were left out before.
func (b *budget) take(o *Outcome, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallyOf(o, now)
	if t.missing(now, kindPerSecond) <= kindBurst-1 && b.all.missing(now, perSecond) <= burst-1 {
		b.grant(t, o)
		return true
	}
	b.leave(t, o)
	return false
}

// grant takes the tokens for an outcome, which then replaces the latest that waits.
func (b *budget) grant(t *tally, o *Outcome) {
	t.used++
	b.all.used++
	if t.waits {
		b.forget(t)
	}
	if t == &b.many {
		b.others += t.leftOut
	} else {
		o.LeftOut += t.leftOut
	}
	t.leftOut = 0
	o.LeftOutOthers += b.others
	b.others = 0
}

// leave leaves an outcome out, for now.
func (b *budget) leave(t *tally, o *Outcome) {
	if t.waits {
		t.leftOut += 1 + t.latest.LeftOut
		b.others += t.latest.LeftOutOthers
		b.leftOut++
	} else {
		t.waits = true
		if b.waiting++; b.waiting == 1 {
			select {
			case b.filled <- struct{}{}:
			default:
			}
		}
	}
	t.latest = *o
	if len(o.EventID)+len(o.Detail)+len(o.Source)+len(o.Subject) > longestText {
		t.latest = o.bounded() // so that what is kept of each kind is bounded
	}
}

// forget counts the latest outcome of a kind among those that are left out.
func (b *budget) forget(t *tally) {
	t.leftOut += 1 + t.latest.LeftOut
	b.others += t.latest.LeftOutOthers
	b.leftOut++
	t.waits, t.latest = false, Outcome{}
	b.waiting--
}

// tallyOf finds the tally of an outcome's kind, or makes one.
func (b *budget) tallyOf(o *Outcome, now time.Time) *tally {
	k := kind{o.Category, o.Outcome, o.Reason}
	if t := b.kinds[k]; t != nil {
		return t
	}
	if len(b.kinds) >= mostKinds && now.Sub(b.pruned) > pruneEvery {
		b.prune(now)
	}
	if len(b.kinds) >= mostKinds || len(o.Category) > longestCategory {
		return &b.many
	}
	k.category = strings.Clone(k.category) // not the message that it is a part of
	t := &tally{bucket: bucket{at: now}}
	b.kinds[k] = t
	return t
}

// prune forgets idle kinds, and never what they have left out.
func (b *budget) prune(now time.Time) {
	b.pruned = now
	for k, t := range b.kinds {
		if now.Sub(t.at) < kindIdle {
			continue
		}
		if t.waits {
			b.forget(t)
		}
		b.others += t.leftOut
		delete(b.kinds, k)
	}
}

// due returns outcomes that were left out, and for which there is room now; so many at most. Half of what may be recorded is
// kept for what is new.
func (b *budget) due(now time.Time, most int) []Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == 0 {
		return nil
	}
	var due []Outcome
	offer := func(t *tally) {
		if !t.waits || len(due) >= most || t.missing(now, kindPerSecond) > kindBurst-1 || b.all.missing(now, perSecond) > burst/2 {
			return
		}
		o := t.latest
		t.waits, t.latest = false, Outcome{}
		b.waiting--
		b.grant(t, &o)
		due = append(due, o)
	}
	offer(&b.many)
	for _, t := range b.kinds {
		offer(t)
	}
	return due
}

// giveBack counts an outcome that could not be recorded, with all that it counts.
func (b *budget) giveBack(o *Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leftOut++
	b.others += o.LeftOutOthers
	if t := b.kinds[kind{o.Category, o.Outcome, o.Reason}]; t != nil {
		t.leftOut += 1 + o.LeftOut
	} else {
		b.others += 1 + o.LeftOut
	}
}

// total is how many outcomes were left out for good since the beginning.
func (b *budget) total() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leftOut
}
