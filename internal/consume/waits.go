package consume

import (
	"fmt"
	"slices"
	"sort"
	"strings"
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
)

// WaitClock is the one wait with which events go on: Redis's clock was set back.
const WaitClock = "redis_clock"

// remindEvery is how often a wait that goes on is logged again.
const remindEvery = time.Minute

// waits knows what this worker waits for at the moment. Each wait is logged when it begins, once a minute while it
// lasts, and when it is over: an outage is a line a minute, not a line per attempt.
type waits struct {
	log  *zap.Logger
	held func() int // events in hand

	mu    sync.Mutex
	every time.Duration // between two lines about one wait
	now   map[string]*wait
}

type wait struct {
	since, told time.Time
	reason      string
}

// Wait is one thing that a worker waits for at the moment.
type Wait struct {
	For    string    // one of the words above
	Reason string    // what was seen of it last; without secrets
	Since  time.Time // when the wait began
}

// WaitWords are the values that Wait.For can have, except the one for Redis's clock, with which events go on.
func WaitWords() []string {
	return []string{waitNATS, waitConsumer, waitRedis, waitSlack, waitCredentials, waitDeadLetter}
}

func newWaits(log *zap.Logger, held func() int) *waits {
	return &waits{log: log, held: held, every: remindEvery, now: map[string]*wait{}}
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
	w.tell(what, entry, now)
}

// tell logs a wait, unless that was done a moment ago; mu is held.
func (w *waits) tell(what string, entry *wait, now time.Time) {
	if now.Sub(entry.told) < w.every {
		return
	}
	entry.told = now
	w.log.Warn("waiting", zap.String("for", what), zap.String("reason", entry.reason),
		zap.Int("held", w.held()), zap.Float64("waited_s", now.Sub(entry.since).Seconds()))
}

// remind logs the waits that nobody has spoken of for a while: during a long pause no attempt is made that could.
func (w *waits) remind() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, entry := range w.now {
		w.tell(what, entry, time.Now())
	}
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

// list is what is waited for now, in alphabetical order.
func (w *waits) list() []Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Wait, 0, len(w.now))
	for what, entry := range w.now {
		list = append(list, Wait{For: what, Reason: entry.reason, Since: entry.since})
	}
	slices.SortFunc(list, func(a, b Wait) int { return strings.Compare(a.For, b.For) })
	return list
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
