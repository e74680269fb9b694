// Package availability knows what a worker depends on and cannot reach at the moment. The code that finds
// out reports it here; whether more events are fetched and whether the worker is ready is decided from it,
// never from what was logged. A Tracker also writes the log lines about outages: one when an outage begins,
// one a minute while it lasts, one when it is over.
package availability

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Dependency is something that a worker needs and that can be unavailable.
type Dependency int

const (
	NATS                 Dependency = iota // the connection to NATS
	Consumer                               // the stream and the durable consumer
	Redis                                  // an answer of the scripts
	Slack                                  // a successful post
	Credentials                            // a token or webhook that Slack accepts
	DeadLetters                            // the dead-letter stream's acknowledgement
	Backlog                                // room for more events that wait for their channel
	Clock                                  // a clock of Redis that was not set back; work continues without it
	numberOfDependencies = iota
)

// The words are shown in logs, metrics, by /readyz and by "notifier status".
var words = [numberOfDependencies]string{
	NATS: "nats", Consumer: "consumer", Redis: "redis", Slack: "slack",
	Credentials: "credentials", DeadLetters: "dead_letter", Backlog: "backlog", Clock: "redis_clock",
}

func (d Dependency) String() string { return words[d] }

// Dependencies are all that there are.
func Dependencies() []Dependency {
	all := make([]Dependency, numberOfDependencies)
	for i := range all {
		all[i] = Dependency(i)
	}
	return all
}

// Words are the words of what events wait for: all but that of Clock.
func Words() []string { return words[:Clock:Clock] }

// Wait is one thing that a worker is waiting for.
type Wait struct {
	For     string    // the word of a Dependency
	Channel string    // For "slack": the channel that takes no posts; empty: none does
	Reason  string    // the latest error; without secrets
	Since   time.Time // when the wait began
}

// Tracker is the state of everything that a worker depends on, and the one owner of that state. It is safe
// for concurrent use.
type Tracker struct {
	log *waitLog

	mu      sync.Mutex
	outages map[outageKey]outage
}

// outageKey is what an outage is about: a dependency, or that dependency for one Slack channel alone.
type outageKey struct {
	Dependency
	channel string // empty: for all channels
}

// outage is why and since when something is unavailable.
type outage struct {
	since  time.Time
	told   time.Time // when it was last reported
	reason string
	soft   bool // it is reported, and nothing stops for it
}

// New makes a Tracker. held is how many events wait for something, for the log lines.
func New(log *zap.Logger, held func(Dependency) int) *Tracker {
	return &Tracker{log: newWaitLog(log, held), outages: map[outageKey]outage{}}
}

// Lost reports that something is unavailable. It may be called at each failed attempt; the latest reason
// counts.
func (a *Tracker) Lost(d Dependency, reason error) {
	a.begin(outageKey{Dependency: d}, reason, false)
}

// ChannelLost reports that a Slack channel takes no posts.
func (a *Tracker) ChannelLost(channel string, reason error) {
	a.begin(outageKey{Slack, channel}, reason, false)
}

// Impaired reports that something is wrong with what is needed later, such as a stream for dead letters that
// does not exist. It is listed among the waits, and nothing stops for it.
func (a *Tracker) Impaired(d Dependency, reason error) {
	a.begin(outageKey{Dependency: d}, reason, true)
}

func (a *Tracker) begin(key outageKey, reason error, soft bool) {
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

// Repaired reports the end of what Impaired reported, and of nothing worse.
func (a *Tracker) Repaired(d Dependency) { a.over(outageKey{Dependency: d}, true) }

// Recovered reports that something is available. It may be called at each success.
func (a *Tracker) Recovered(d Dependency) { a.over(outageKey{Dependency: d}, false) }

// ChannelRecovered reports that a Slack channel takes posts.
func (a *Tracker) ChannelRecovered(channel string) {
	a.over(outageKey{Slack, channel}, false)
}

// ChannelIdle reports that nothing waits for a Slack channel any more, so no post will find out that it takes
// them again. What is known of it holds for a while after the last attempt.
func (a *Tracker) ChannelIdle(channel string, while time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := outageKey{Slack, channel}
	if o, on := a.outages[key]; on && time.Since(o.told) > while {
		delete(a.outages, key)
		a.log.idle(key, o)
	}
}

func (a *Tracker) over(key outageKey, soft bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, on := a.outages[key]
	if !on || o.soft != soft {
		return
	}
	delete(a.outages, key)
	a.log.recovered(key, o)
}

// Remind has the outages logged that nothing has reported for a while: during a long pause no attempt is
// made.
func (a *Tracker) Remind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, o := range a.outages {
		a.log.waiting(key, o)
	}
}

// Unavailable reports whether any of these is, not only impaired and not only for one channel.
func (a *Tracker) Unavailable(any ...Dependency) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(any, func(d Dependency) bool {
		o, on := a.outages[outageKey{Dependency: d}]
		return on && !o.soft
	})
}

// Untold reports whether something is unavailable and nothing has reported so for a while: then nothing asks
// for it, and it would go unnoticed that it is available again.
func (a *Tracker) Untold(d Dependency, while time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, on := a.outages[outageKey{Dependency: d}]
	return on && time.Since(o.told) > while
}

// Waits lists what is unavailable, in alphabetical order; without arguments, of everything.
func (a *Tracker) Waits(of ...Dependency) []Wait {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Wait
	for key, o := range a.outages {
		if len(of) == 0 || slices.Contains(of, key.Dependency) {
			list = append(list, Wait{For: key.String(), Channel: key.channel, Reason: o.reason, Since: o.since})
		}
	}
	slices.SortFunc(list, func(x, y Wait) int {
		return cmp.Or(strings.Compare(x.For, y.For), strings.Compare(x.Channel, y.Channel))
	})
	return list
}
