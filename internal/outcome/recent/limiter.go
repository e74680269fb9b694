package recent

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What a worker records at most. Each kind of outcome, a category and a reason, has a limit of its own, so
// that a storm of one kind does not crowd out the others.
const (
	perSecond     = 100 // of all kinds
	burst         = 200
	kindPerSecond = 2
	kindBurst     = 20
	mostKinds     = 2048 // publishers choose the names of categories
	queued        = 512  // outcomes that wait to be stored
)

// limiter decides what is recorded and counts the rest. The latest outcome that it left out of each kind
// waits: it is recorded once there is room, with the number of those before it. So the end of a storm is
// never missing, and the count is complete even if nothing follows.
type limiter struct {
	mu     sync.Mutex
	all    *rate.Limiter
	kinds  map[Kind]*tally
	latest map[Kind]Outcome // waits for room
	queue  []Outcome        // the oldest first
	others uint64           // left out, of kinds that are not in the map
	total  uint64           // left out since the start
}

// Kind is what outcomes have in common that share a limit.
type Kind struct{ Category, Outcome, Reason string }

type tally struct {
	*rate.Limiter
	leftOut uint64 // since the last one that was recorded
}

func newLimiter() *limiter {
	return &limiter{
		all:    rate.NewLimiter(perSecond, burst),
		kinds:  map[Kind]*tally{},
		latest: map[Kind]Outcome{},
	}
}

func kindOf(o Outcome) Kind { return Kind{o.Category, o.Outcome, o.Reason} }

// add queues as many of n outcomes as there is room for. Of the others, the last waits in place of the latest
// of its kind.
func (l *limiter) add(k Kind, n int, build func(i int) Outcome, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[k]
	if t == nil {
		if len(l.kinds) >= mostKinds {
			l.others += uint64(n)
			l.total += uint64(n)
			return
		}
		t = &tally{Limiter: rate.NewLimiter(kindPerSecond, kindBurst)}
		l.kinds[k] = t
	}
	if _, waits := l.latest[k]; waits { // it gives way
		l.leaveOut(t, 1)
	}
	for i := range n {
		if t.TokensAt(now) < 1 || l.all.TokensAt(now) < 1 || len(l.queue) >= queued {
			l.leaveOut(t, n-1-i)
			l.latest[k] = build(n - 1)
			return
		}
		l.admit(build(i), t, now)
	}
	delete(l.latest, k)
}

func (l *limiter) leaveOut(t *tally, n int) {
	t.leftOut += uint64(n)
	l.total += uint64(n)
}

// admit queues an outcome with what was left out before it.
func (l *limiter) admit(o Outcome, t *tally, now time.Time) {
	t.AllowN(now, 1)
	l.all.AllowN(now, 1)
	o.LeftOut, t.leftOut = t.leftOut, 0
	o.LeftOutOthers, l.others = l.others, 0
	l.queue = append(l.queue, o)
}

// next returns the next outcome to store. If there is none, waits reports whether one waits for room.
func (l *limiter) next(now time.Time) (o Outcome, found, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.admitLatest(now)
		l.forget(now)
	}
	if len(l.queue) == 0 {
		return Outcome{}, false, len(l.latest) > 0
	}
	o = l.queue[0]
	l.queue = l.queue[1:]
	return o, true, false
}

// admitLatest queues outcomes that were left out, and keeps half of the burst for new ones.
func (l *limiter) admitLatest(now time.Time) {
	for k, o := range l.latest {
		if l.all.TokensAt(now) <= burst/2 {
			return
		}
		if t := l.kinds[k]; t.TokensAt(now) >= 1 {
			delete(l.latest, k)
			l.admit(o, t, now)
		}
	}
}

// forget makes room for new kinds once half of it is taken. A kind that has its full burst again is as good
// as a new one.
func (l *limiter) forget(now time.Time) {
	if len(l.kinds) <= mostKinds/2 {
		return
	}
	for k, t := range l.kinds {
		if _, waits := l.latest[k]; waits || t.TokensAt(now) < kindBurst {
			continue
		}
		l.others += t.leftOut
		delete(l.kinds, k)
	}
}

// lose counts an outcome that could not be stored, and those that it counts.
func (l *limiter) lose(o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	l.others += o.LeftOutOthers
	if t := l.kinds[kindOf(o)]; t != nil {
		t.leftOut += 1 + o.LeftOut
	} else {
		l.others += 1 + o.LeftOut
	}
}

// leftOut is how many outcomes were left out since the start. Those that wait do not count yet.
func (l *limiter) leftOut() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
