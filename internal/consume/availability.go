package consume

import (
	"cmp"
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
	laneRoom                               // room for more events that wait for their channel
	redisClock                             // a clock of Redis that was not set back; work continues without it
	numberOfDependencies = iota
)

// WaitClock is the Wait.For with which events are still decided: the clock of Redis was set back.
const WaitClock = "redis_clock"

// WaitRedis is the Wait.For with which nothing is decided.
const WaitRedis = "redis"

// The words are shown in logs, metrics, by /readyz and by "notifier status".
var dependencyWords = [numberOfDependencies]string{
	natsConnection: "nats", jetStreamConsumer: "consumer", redisScripts: WaitRedis, slackPosts: "slack",
	slackCredentials: "credentials", deadLetterStream: "dead_letter", laneRoom: "backlog", redisClock: WaitClock,
}

func (d dependency) String() string { return dependencyWords[d] }

// WaitWords are the values that Wait.For can have, except WaitClock.
func WaitWords() []string { return dependencyWords[:redisClock:redisClock] }

// Wait is one thing that a worker is waiting for.
type Wait struct {
	For     string    // one of WaitWords, or WaitClock
	Channel string    // For "slack": the channel that takes no posts; empty: none does
	Reason  string    // the latest error; without secrets
	Since   time.Time // when the wait began
}

// availability is the state of everything that a worker depends on, and the one owner of that state: whoever finds out
// that something is unavailable, or available again, reports it here, and pulling and readiness are decided from it. The log
// lines about it are waitLog's business.
type availability struct {
	log *waitLog

	mu      sync.Mutex
	outages map[outageKey]outage
}

// outageKey is what an outage is about: a dependency, or that dependency for one Slack channel alone.
type outageKey struct {
	dependency
	channel string // empty: for all channels
}

// outage is why and since when something is unavailable.
type outage struct {
	since  time.Time
	told   time.Time // when it was last reported
	reason string
	soft   bool // it is reported, and nothing stops for it
}

func newAvailability(log *waitLog) *availability {
	return &availability{log: log, outages: map[outageKey]outage{}}
}

// lost reports that something is unavailable. It may be called at each failed attempt; the latest reason counts.
func (a *availability) lost(d dependency, reason error) {
	a.begin(outageKey{dependency: d}, reason, false)
}

// channelLost reports that a Slack channel takes no posts.
func (a *availability) channelLost(channel string, reason error) {
	a.begin(outageKey{slackPosts, channel}, reason, false)
}

// impaired reports that something is wrong with what is needed later, such as a stream for dead letters that does not exist.
// It is listed among the waits, and nothing stops for it.
func (a *availability) impaired(d dependency, reason error) {
	a.begin(outageKey{dependency: d}, reason, true)
}

func (a *availability) begin(key outageKey, reason error, soft bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, on := a.outages[key]
	if on && soft && !o.soft {
		return // it is worse
	}
	if !on {
		o.since = time.Now()
	}
	o.reason, o.soft, o.told = reason.Error(), soft, time.Now()
	a.outages[key] = o
	a.log.waiting(key, o)
}

// repaired reports the end of what impaired reported, and of nothing worse.
func (a *availability) repaired(d dependency) { a.over(outageKey{dependency: d}, true) }

// recovered reports that something is available. It may be called at each success.
func (a *availability) recovered(d dependency) { a.over(outageKey{dependency: d}, false) }

// channelRecovered reports that a Slack channel takes posts, or that nothing waits for it any more.
func (a *availability) channelRecovered(channel string) {
	a.over(outageKey{slackPosts, channel}, false)
}

func (a *availability) over(key outageKey, soft bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, on := a.outages[key]
	if !on || o.soft != soft {
		return
	}
	delete(a.outages, key)
	a.log.recovered(key, o)
}

// remind has the outages logged that nothing has reported for a while: during a long pause no attempt is made.
func (a *availability) remind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.outages {
		a.log.waiting(key, o)
	}
}

// unavailable reports whether any of these is, not only impaired and not only for one channel.
func (a *availability) unavailable(any ...dependency) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(any, func(d dependency) bool {
		o, on := a.outages[outageKey{dependency: d}]
		return on && !o.soft
	})
}

// untold reports whether something is unavailable and nobody has said so for a while: then nobody asks for it, and nobody
// would find out that it is available again.
func (a *availability) untold(d dependency, while time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, on := a.outages[outageKey{dependency: d}]
	return on && time.Since(o.told) > while
}

// waits lists what is unavailable, in alphabetical order; without arguments, of everything.
func (a *availability) waits(of ...dependency) []Wait {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Wait
	for key, o := range a.outages {
		if len(of) == 0 || slices.Contains(of, key.dependency) {
			list = append(list, Wait{For: key.String(), Channel: key.channel, Reason: o.reason, Since: o.since})
		}
	}
	slices.SortFunc(list, func(x, y Wait) int {
		return cmp.Or(strings.Compare(x.For, y.For), strings.Compare(x.Channel, y.Channel))
	})
	return list
}
