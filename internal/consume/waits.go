package consume

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"go.uber.org/zap"
)

// What a worker may have to wait for. The words are shown in logs and by /readyz.
const (
	waitNATS        = "nats"        // the connection
	waitConsumer    = "consumer"    // the stream and the durable consumer
	waitRedis       = "redis"       // a script's answer
	waitSlack       = "slack"       // a post's success
	waitCredentials = "credentials" // a token or webhook that Slack accepts
	waitDeadLetter  = "dead_letter" // the dead-letter stream's acknowledgement
	waitClock       = "redis_clock" // Redis's clock, which was set back; events go on meanwhile
)

// remindEvery is how often a wait that goes on is logged again.
const remindEvery = time.Minute

// waits knows what this worker waits for at the moment. Each wait is logged when it begins, once a minute while it
// lasts, and when it is over: an outage is a line a minute, not a line per attempt.
type waits struct {
	log  *zap.Logger
	held func() int // events in hand

	mu  sync.Mutex
	now map[string]*wait
}

type wait struct {
	since, told time.Time
	reason      string
}

func newWaits(log *zap.Logger, held func() int) *waits {
	return &waits{log: log, held: held, now: map[string]*wait{}}
}

// begin notes that what is not there, and why; it may be called at each attempt.
func (w *waits) begin(what string, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	entry, known := w.now[what]
	if !known {
		entry = &wait{since: now}
		w.now[what] = entry
	}
	entry.reason = reason.Error()
	if known && now.Sub(entry.told) < remindEvery {
		return
	}
	entry.told = now
	w.log.Warn("waiting", zap.String("for", what), zap.String("reason", entry.reason),
		zap.Int("held", w.held()), zap.Float64("waited_s", now.Sub(entry.since).Seconds()))
}

// end notes that what is there again.
func (w *waits) end(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if entry, known := w.now[what]; known {
		delete(w.now, what)
		w.log.Info("going on", zap.String("after", what),
			zap.Int("held", w.held()), zap.Float64("waited_s", time.Since(entry.since).Seconds()))
	}
}

// reasons lists the named waits that are on now, each with its reason.
func (w *waits) reasons(named ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var reasons []string
	for _, what := range named {
		if entry, on := w.now[what]; on {
			reasons = append(reasons, fmt.Sprintf("%s: %s", what, entry.reason))
		}
	}
	sort.Strings(reasons)
	return reasons
}
