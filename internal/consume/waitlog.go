package consume

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// remindEvery is how often an outage that lasts is logged again.
const remindEvery = time.Minute

// waitLog writes the log lines about what is unavailable: when it begins, once a minute while it lasts, and when it is
// over. So an outage costs a line a minute, not a line per attempt. It only writes; availability has the state.
type waitLog struct {
	log  *zap.Logger
	held func() int // events in flight

	mu     sync.Mutex
	every  time.Duration // between two lines about one outage
	logged [numberOfDependencies]time.Time
}

func newWaitLog(log *zap.Logger, held func() int) *waitLog {
	return &waitLog{log: log, held: held, every: remindEvery}
}

// waiting logs an outage, unless that was done a moment ago.
func (w *waitLog) waiting(d dependency, o outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.logged[d]) < w.every {
		return
	}
	w.logged[d] = now
	w.log.Warn("waiting", zap.Stringer("for", d), zap.String("reason", o.reason),
		zap.Int("held", w.held()), zap.Float64("waited_s", now.Sub(o.since).Seconds()))
}

// recovered logs that an outage is over.
func (w *waitLog) recovered(d dependency, o outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logged[d] = time.Time{}
	w.log.Info("recovered", zap.Stringer("after", d),
		zap.Int("held", w.held()), zap.Float64("waited_s", time.Since(o.since).Seconds()))
}
