package availability

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/term"
)

// remindEvery is how often an outage that lasts is logged again.
const remindEvery = time.Minute

// waitLog writes the log lines about what is unavailable: when it begins, once a minute while it lasts, and
// when it is over. So an outage costs a line a minute, not a line per attempt. It only writes; availability
// has the state.
type waitLog struct {
	log  *zap.Logger
	held func(Dependency) int // events that wait for it

	mu     sync.Mutex
	every  time.Duration // between two lines about one outage
	logged map[outageKey]time.Time
}

func newWaitLog(log *zap.Logger, held func(Dependency) int) *waitLog {
	return &waitLog{log: log, held: held, every: remindEvery, logged: map[outageKey]time.Time{}}
}

// waiting logs an outage, unless that was done a moment ago.
func (w *waitLog) waiting(key outageKey, o outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.logged[key]) < w.every {
		return
	}
	w.logged[key] = now
	w.log.Warn("waiting", zap.Stringer("for", key), key.field(), zap.String("reason", o.reason),
		zap.Int("held", w.held(key.Dependency)), zap.Float64("waited_s", term.Seconds(now.Sub(o.since))))
}

// recovered logs that an outage is over.
func (w *waitLog) recovered(key outageKey, o outage) {
	w.log.Info("recovered", w.ended(key, o)...)
}

// idle logs that nothing asks any more whether an outage is over.
func (w *waitLog) idle(key outageKey, o outage) {
	w.log.Info("nothing waits any more", w.ended(key, o)...)
}

// ended is what there is to log of an outage that is not reported any more.
func (w *waitLog) ended(key outageKey, o outage) []zap.Field {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.logged, key)
	return []zap.Field{
		zap.Stringer("after", key), key.field(),
		zap.Int("held", w.held(key.Dependency)), zap.Float64("waited_s", term.Seconds(time.Since(o.since))),
	}
}

// field is the channel in a log line, if there is one.
func (k outageKey) field() zap.Field {
	if k.channel == "" {
		return zap.Skip()
	}
	return zap.String("channel", k.channel)
}

// RemindEvery sets how often an outage that lasts is logged again; tests shorten it.
func (a *Tracker) RemindEvery(d time.Duration) {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	a.log.every = d
}
