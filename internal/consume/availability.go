package consume

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// dependency is something that a worker needs and that can be unavailable.
type dependency int

const (
	natsConnection       dependency = iota // the connection to NATS
	jetStreamConsumer                      // the stream and the durable consumer
	redisScripts                           // an answer of the scripts
	slackPosts                             // a successful post
	slackCredentials                       // a token or webhook that Slack accepts
	deadLetterStream                       // the dead-letter stream's acknowledgement
	redisClock                             // a clock of Redis that was not set back: the one with which work continues
	numberOfDependencies = iota
)

// WaitClock is the Wait.For with which events are still decided: the clock of Redis was set back.
const WaitClock = "redis_clock"

// The words are shown in logs, metrics, by /readyz and by "notifier status".
var dependencyWords = [numberOfDependencies]string{
	natsConnection: "nats", jetStreamConsumer: "consumer", redisScripts: "redis", slackPosts: "slack",
	slackCredentials: "credentials", deadLetterStream: "dead_letter", redisClock: WaitClock,
}

func (d dependency) String() string { return dependencyWords[d] }

// WaitWords are the values that Wait.For can have, except WaitClock.
func WaitWords() []string { return dependencyWords[:redisClock:redisClock] }

// Wait is one thing that a worker is waiting for.
type Wait struct {
	For    string    // one of WaitWords, or WaitClock
	Reason string    // the latest error; without secrets
	Since  time.Time // when the wait began
}

// availability is the state of everything that a worker depends on, and the one owner of that state: whoever finds out
// that something is unavailable, or available again, reports it here, and pulling and readiness are decided from it. The log
// lines about it are waitLog's business.
type availability struct {
	log *waitLog

	mu      sync.Mutex
	outages [numberOfDependencies]outage
}

// outage is why and since when something is unavailable. The zero value: it is available.
type outage struct {
	since  time.Time
	reason string
	soft   bool // it is reported, and nothing stops for it
}

func (o outage) on() bool { return !o.since.IsZero() }

// lost reports that something is unavailable. It may be called at each failed attempt; the latest reason counts.
func (a *availability) lost(d dependency, reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.outages[d]
	if !o.on() {
		o.since = time.Now()
	}
	o.reason, o.soft = reason.Error(), false
	a.log.waiting(d, *o)
}

// impaired reports that something is wrong with what is needed later, such as a stream for dead letters that does not exist.
// It is listed among the waits, and nothing stops for it.
func (a *availability) impaired(d dependency, reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.outages[d]
	if o.on() && !o.soft {
		return // it is worse
	}
	if !o.on() {
		o.since = time.Now()
	}
	o.reason, o.soft = reason.Error(), true
	a.log.waiting(d, *o)
}

// repaired reports the end of what impaired reported, and of nothing worse.
func (a *availability) repaired(d dependency) { a.over(d, true) }

// recovered reports that something is available. It may be called at each success.
func (a *availability) recovered(d dependency) { a.over(d, false) }

func (a *availability) over(d dependency, soft bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.outages[d]
	if !o.on() || o.soft != soft {
		return
	}
	a.outages[d] = outage{}
	a.log.recovered(d, o)
}

// remind has the outages logged that nothing has reported for a while: during a long pause no attempt is made.
func (a *availability) remind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for d, o := range a.outages {
		if o.on() {
			a.log.waiting(dependency(d), o)
		}
	}
}

// unavailable reports whether any of these is, not only impaired.
func (a *availability) unavailable(any ...dependency) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(any, func(d dependency) bool { return a.outages[d].on() && !a.outages[d].soft })
}

// waits lists what is unavailable, in alphabetical order; without arguments, of everything.
func (a *availability) waits(of ...dependency) []Wait {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Wait
	for d, o := range a.outages {
		if o.on() && (len(of) == 0 || slices.Contains(of, dependency(d))) {
			list = append(list, Wait{For: dependency(d).String(), Reason: o.reason, Since: o.since})
		}
	}
	slices.SortFunc(list, func(x, y Wait) int { return strings.Compare(x.For, y.For) })
	return list
}
