// Package availability tracks the dependencies that a worker cannot reach at the moment: the outages, their
// begin, and their reason. The code that finds out reports here, and the worker decides from it whether to
// fetch more events and whether it is ready. A Tracker also logs each outage: a line when it begins, one a
// minute while it lasts, and one when it is over.
package availability

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"notifier/internal/snapshot"
	"notifier/internal/term"
	"notifier/internal/wait"
)

// Dependency is something that a worker needs and that can be unavailable.
type Dependency int

const (
	NATS                 Dependency = iota // the connection to NATS
	Consumer                               // the stream and the durable consumer
	Redis                                  // replies of the scripts
	Slack                                  // posts
	Credentials                            // a token or webhook that Slack accepts, and a URL that leads to Slack
	DeadLetters                            // the stream of dead letters
	Log                                    // a log that can be written
	Clock                                  // a clock of Redis that was not set back; work continues without it
	Eviction                               // a Redis that evicts nothing; work continues without it
	numberOfDependencies = iota
)

var words = [numberOfDependencies]string{
	NATS: "nats", Consumer: "consumer", Redis: "redis", Slack: "slack",
	Credentials: "credentials", DeadLetters: "dead_letter", Log: "log", Clock: "redis_clock",
	Eviction: "redis_eviction",
}

// String returns the word in logs, metrics, /readyz and "notifier status".
func (d Dependency) String() string { return words[d] }

// Dependencies returns all dependencies.
func Dependencies() []Dependency {
	all := make([]Dependency, numberOfDependencies)
	for i := range all {
		all[i] = Dependency(i)
	}
	return all
}

// Words returns the words of the dependencies that events wait for: all before Clock.
func Words() []string { return words[:Clock:Clock] }

// Tracker holds the current outages. It is safe for concurrent use.
type Tracker struct {
	log  *zap.Logger
	held func(Dependency) int

	mu      sync.Mutex
	remind  time.Duration // between two log lines about an outage
	outages map[key]*outage
}

// key names an outage: of a dependency, or of Slack for one channel.
type key struct {
	dependency Dependency
	channel    string
}

type outage struct {
	since    time.Time
	reported time.Time // last time
	logged   time.Time // last time
	reason   string
}

// New makes a Tracker. held counts the events that wait for a dependency, for the log lines.
func New(log *zap.Logger, held func(Dependency) int) *Tracker {
	return &Tracker{log: log, held: held, remind: time.Minute, outages: map[key]*outage{}}
}

// RemindEvery sets the pause between two log lines about an outage, for tests.
func (a *Tracker) RemindEvery(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remind = d
}

// Lost reports that a dependency is unavailable. It may be called for each failed attempt; the latest reason
// counts.
func (a *Tracker) Lost(d Dependency, reason error) { a.begin(key{d, ""}, reason) }

// ChannelLost reports that a Slack channel takes no posts.
func (a *Tracker) ChannelLost(channel string, reason error) {
	a.begin(key{Slack, channel}, reason)
}

func (a *Tracker) begin(k key, reason error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.outages[k]
	if o == nil {
		o = &outage{since: time.Now().UTC()}
		a.outages[k] = o
	}
	o.reason, o.reported = reason.Error(), time.Now()
	a.logWaiting(k, o)
}

// Recovered reports that a dependency is available. It may be called for each success.
func (a *Tracker) Recovered(d Dependency) { a.end(key{d, ""}) }

// ChannelRecovered reports that a Slack channel takes posts.
func (a *Tracker) ChannelRecovered(channel string) { a.end(key{Slack, channel}) }

func (a *Tracker) end(k key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.outages[k]; o != nil {
		delete(a.outages, k)
		a.log.Info("recovered", a.fields("after", k, o)...)
	}
}

// ChannelIdle ends the outage of a Slack channel for which no event waits any more, unless it was reported
// within that time. No post will show that the channel recovered.
func (a *Tracker) ChannelIdle(channel string, within time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := key{Slack, channel}
	if o := a.outages[k]; o != nil && time.Since(o.reported) > within {
		delete(a.outages, k)
		a.log.Info("nothing waits any more", a.fields("after", k, o)...)
	}
}

// Remind logs long outages again. During a pause no attempt would do so.
func (a *Tracker) Remind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, o := range a.outages {
		a.logWaiting(k, o)
	}
}

// Unavailable reports whether one of the dependencies is lost for all channels.
func (a *Tracker) Unavailable(any ...Dependency) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(any, func(d Dependency) bool { return a.outages[key{d, ""}] != nil })
}

// Unreported reports whether a dependency is lost and was not reported within that time: then nothing tries
// to reach it, and nothing would notice its recovery.
func (a *Tracker) Unreported(d Dependency, within time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.outages[key{d, ""}]
	return o != nil && time.Since(o.reported) > within
}

// Waits lists the outages of some dependencies, or of all, in alphabetical order.
func (a *Tracker) Waits(of ...Dependency) []snapshot.Wait {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []snapshot.Wait
	for k, o := range a.outages {
		if len(of) == 0 || slices.Contains(of, k.dependency) {
			list = append(list, snapshot.Wait{
				For: k.dependency.String(), Channel: k.channel, Reason: o.reason, Since: o.since,
			})
		}
	}
	slices.SortFunc(list, func(x, y snapshot.Wait) int {
		return cmp.Or(strings.Compare(x.For, y.For), strings.Compare(x.Channel, y.Channel))
	})
	return list
}

// RetryPause is the mean pause of Retry. Tests shorten it.
var RetryPause = 500 * time.Millisecond

// Retry repeats a call until it succeeds, and reports the dependency as lost meanwhile. It returns ctx's
// error if ctx is done first.
func (a *Tracker) Retry(ctx context.Context, d Dependency, call func() error) error {
	lost := false
	for {
		err := call()
		if err == nil {
			if lost {
				a.Recovered(d)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Lost(d, err)
		lost = true
		if !wait.For(ctx, wait.Jitter(RetryPause)) {
			return ctx.Err()
		}
	}
}

// logWaiting logs an outage, unless its last line is recent. mu is held.
func (a *Tracker) logWaiting(k key, o *outage) {
	now := time.Now()
	if now.Sub(o.logged) < a.remind {
		return
	}
	o.logged = now
	a.log.Warn("waiting", append(a.fields("for", k, o), zap.String("reason", o.reason))...)
}

func (a *Tracker) fields(name string, k key, o *outage) []zap.Field {
	fields := []zap.Field{
		zap.Stringer(name, k.dependency), zap.Int("held", a.held(k.dependency)),
		zap.Float64("waited_s", term.Seconds(time.Since(o.since))),
	}
	if k.channel != "" {
		fields = append(fields, zap.String("channel", k.channel))
	}
	return fields
}
