package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/internal/wait"
	"notifier/test/kit"
)

// The kinds of faults.
const (
	faultKill      = "kill"
	faultStop      = "stop"
	faultTerm      = "clean restart"
	faultCut       = "cut"
	faultSlow      = "bad link"
	faultRedis     = "redis restart"
	faultEmpty     = "redis empty restart"
	faultFailover  = "redis failover"
	faultPrimary   = "redis primary"
	faultScripts   = "script flush"
	faultNATS      = "nats restart"
	faultConsumer  = "consumer deleted"
	faultSlack     = "slack unavailable"
	faultBrownOut  = "slack brown-out"
	faultLimited   = "slack 429"
	faultChannels  = "slack limits each channel"
	faultLost      = "slack accepts and resets"
	faultRejects   = "slack rejects"
	faultRefuses   = "slack refuses the channel"
	faultBlind     = "channel unreadable"
	faultMute      = "mute"
	faultTemporary = "temporary limit"
)

// everyWorker is the target of the clean stop that ends a run.
const everyWorker = "all, at the end"

// The codes with which Slack refuses posts: because of the message, which keeps its slot, and because of the
// channel.
const (
	badMessage = "msg_too_long"
	badChannel = "is_archived"
)

// injector breaks one thing, keeps it broken for a while, and repairs it, even if ctx ends before that.
type injector struct {
	weight int
	inject func(ctx context.Context, random *rand.Rand)
}

// injectFaults runs a lane of injectors, one after the other, until ctx ends. Lanes run side by side, and
// each has things of its own to break: workers, links, servers, posts to Slack, looks at its channel.
func injectFaults(ctx context.Context, random *rand.Rand, lane []injector) {
	var dice []int
	for i, n := range lane {
		dice = append(dice, slices.Repeat([]int{i}, n.weight)...)
	}
	for wait.For(ctx, between(random, 300*time.Millisecond, 1500*time.Millisecond)) {
		lane[dice[random.IntN(len(dice))]].inject(ctx, random)
	}
}

// injectAll runs all lanes until ctx ends. Each lane has its own choice of faults from the seed.
func (d *deployment) injectAll(ctx context.Context, seed uint64, long bool) {
	var lanes sync.WaitGroup
	deadline, _ := ctx.Deadline()
	total := time.Until(deadline)
	for i, lane := range [][]injector{d.againstWorkers(), d.againstLinks(), d.againstReading(), d.operators()} {
		lanes.Go(func() { injectFaults(ctx, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	lanes.Go(func() {
		random := rand.New(rand.NewPCG(seed, 98))
		d.brownOut(ctx, min(total/3, time.Minute)) // each run has one, and time for an event to fail often
		injectFaults(ctx, random, append(d.againstSlack(long), d.storedAnd500()))
	})
	lanes.Go(func() { d.changePace(ctx, total) })
	injectFaults(ctx, rand.New(rand.NewPCG(seed, 99)), d.againstServers()) // here, because it may end the test
	lanes.Wait()
}

// changePace gives the processes that are started in the second third of the time a pace. So there are
// replicas with one and without side by side, and events wait for their turn while everything breaks.
func (d *deployment) changePace(ctx context.Context, total time.Duration) {
	wait.For(ctx, total/3)
	d.paced.Store(true)
	wait.For(ctx, total/3)
	d.paced.Store(false)
}

func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

func (d *deployment) againstWorkers() []injector {
	pick := func(random *rand.Rand) *worker { return d.workers[random.IntN(len(d.workers))] }
	again := func(ctx context.Context, k *worker, pause time.Duration) {
		wait.For(ctx, pause)
		_, err := k.start()
		d.faults.complain(err)
	}
	return []injector{
		{5, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			d.faults.complain(k.now().Kill())
			again(ctx, k, between(random, 100*time.Millisecond, time.Second))
			d.faults.note(faultKill, k.name, begun)
		}},
		{2, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			d.faults.complain(k.now().freeze())
			wait.For(ctx, d.ackWait+between(random, 300*time.Millisecond, 2*time.Second))
			d.faults.complain(k.now().thaw())
			d.faults.note(faultStop, k.name, begun)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			d.faults.complain(k.now().terminate())
			again(ctx, k, between(random, 100*time.Millisecond, 500*time.Millisecond))
			d.faults.note(faultTerm, k.name, begun)
		}},
	}
}

// badLinks are what a link can suffer from without being cut.
var badLinks = []toxic{
	{"latency", `"latency":300,"jitter":200`},
	{"latency", `"latency":900`},
	{"bandwidth", `"rate":2`},
	{"timeout", `"timeout":0`},     // everything vanishes
	{"timeout", `"timeout":700`},   // and the connection ends
	{"reset_peer", `"timeout":50`}, // the connection is reset
	{"limit_data", `"bytes":1500`}, // it ends in the middle of something
}

func (d *deployment) againstLinks() []injector {
	pick := func(random *rand.Rand) *link {
		server := []string{"nats", "redis", "slack"}[random.IntN(3)]
		return d.workers[random.IntN(len(d.workers))].links[server]
	}
	return []injector{
		{1, func(ctx context.Context, random *rand.Rand) {
			l := pick(random)
			begun := time.Now()
			l.cut()
			wait.For(ctx, between(random, 300*time.Millisecond, 4*time.Second))
			d.faults.complain(l.open())
			d.faults.note(faultCut, l.name, begun)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			l, bad := pick(random), badLinks[random.IntN(len(badLinks))]
			begun := time.Now()
			l.cut()
			d.faults.complain(l.open(bad))
			wait.For(ctx, between(random, 500*time.Millisecond, 3*time.Second))
			l.cut()
			d.faults.complain(l.open())
			d.faults.note(faultSlow, l.name+" "+bad.kind, begun)
		}},
	}
}

func (d *deployment) againstServers() []injector {
	return []injector{
		{2, func(ctx context.Context, random *rand.Rand) {
			if d.ledger.look(ctx) != nil && d.ledger.unseenFor() > d.ledger.mostUnseen()/3 {
				return // restarted again and again, Redis is never open to workers, and nobody sees what they are given
			}
			begun := time.Now()
			d.redis.Stop(d.T)
			wait.For(ctx, between(random, 200*time.Millisecond, 2500*time.Millisecond))
			d.faults.note(faultRedis, "", begun) // it answers somewhat before Restart knows
			d.redis.Restart(d.T)
		}},
		{1, func(ctx context.Context, _ *rand.Rand) {
			begun := time.Now()
			flush := func() error { return d.ledger.client.ScriptFlush(context.WithoutCancel(ctx)).Err() }
			var err error // after a restart the client may give the error of an earlier dial
			if !kit.Within(kit.Patience, func() bool { err = flush(); return err == nil }) {
				d.faults.complain(err)
			}
			d.faults.note(faultScripts, "", begun)
		}},
		{2, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			d.nats.Stop()
			wait.For(ctx, between(random, 100*time.Millisecond, 2*time.Second))
			var err error
			if !kit.Within(kit.Patience, func() bool { err = d.nats.Start(); return err == nil }) {
				d.faults.complain(err)
			}
			d.faults.note(faultNATS, "", begun)
		}},
		{1, func(ctx context.Context, _ *rand.Rand) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kit.Patience)
			defer cancel()
			// A worker that is faster creates the consumer as the product does, with its longer AckWait; that is all
			// right.
			d.faults.complain(d.js.DeleteConsumer(ctx, streamName, consumerName))
			d.faults.complain(d.createConsumer(ctx))
			d.faults.note(faultConsumer, "", begun)
		}},
	}
}

// respond is the hook of the fake Slack. Posts and searches of the channel fail independently.
func (d *deployment) respond(r devstack.Request) *devstack.Response {
	if r.IsHistory() && d.unreadable.Load() {
		return &devstack.Response{RetryAfter: "60"}
	}
	if hook := d.posts.Load(); hook != nil && *hook != nil {
		return (*hook)(r)
	}
	return nil
}

// treatPosts sets the responses to posts from now on. Nil means Slack's own.
func (d *deployment) treatPosts(hook devstack.Hook) { d.posts.Store(&hook) }

// againstSlack lets the fake Slack misbehave. Without a Retry-After a 429 is a pause of half a minute for all
// replicas, so that one is for long runs, as are long brown-outs.
func (d *deployment) againstSlack(long bool) []injector {
	always := d.slackAlways
	brownOut := func(from, to time.Duration) func(context.Context, *rand.Rand) {
		return func(ctx context.Context, random *rand.Rand) { d.brownOut(ctx, between(random, from, to)) }
	}
	lane := []injector{
		{2, always(faultSlack, devstack.Response{Status: http.StatusInternalServerError}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Response{Hang: true}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Response{Reset: true}, 300*time.Millisecond, time.Second)},
		{2, brownOut(2*time.Second, 5*time.Second)},
		{2, always(faultLimited, devstack.Response{RetryAfter: "1"}, 100*time.Millisecond, 500*time.Millisecond)},
		{3, d.limitChannels},
		{2, always(faultLost, devstack.Response{Accept: true, Reset: true}, 20*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultLost, devstack.Response{Accept: true, Hang: true}, 100*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultRejects, devstack.Response{Code: badMessage}, 50*time.Millisecond, 400*time.Millisecond)},
		{1, d.refuseChannel},
		{3, d.refuseWhatArrived},
	}
	if long {
		noTime := devstack.Response{Status: http.StatusTooManyRequests}
		lane = append(lane,
			injector{1, always(faultLimited, noTime, 20*time.Millisecond, 50*time.Millisecond)},
			injector{1, brownOut(20*time.Second, time.Minute)},
		)
	}
	return lane
}

// storedAnd500 answers posts with 500 after the message was stored. It has no part in a rolling upgrade from
// v0.2.0, which takes a bare 500 for a certain failure and posts again without a word.
func (d *deployment) storedAnd500() injector {
	b := devstack.Response{Accept: true, Status: http.StatusInternalServerError}
	return injector{1, d.slackAlways(faultLost, b, 20*time.Millisecond, 300*time.Millisecond)}
}

// slackAlways makes Slack behave in one way for a time between from and to.
func (d *deployment) slackAlways(
	kind string, b devstack.Response, from, to time.Duration,
) func(context.Context, *rand.Rand) {
	return func(ctx context.Context, random *rand.Rand) {
		begun := time.Now()
		d.treatPosts(devstack.Always(b))
		wait.For(ctx, between(random, from, to))
		d.treatPosts(nil)
		d.faults.note(kind, "", begun)
	}
}

// failures are answers that blame neither the channel nor the workspace. After the last one the message is in
// Slack.
var failures = []devstack.Response{
	{
		Status: http.StatusInternalServerError,
		Body:   "<!DOCTYPE html><title>Slack is down</title>",
		Header: map[string]string{"Content-Type": "text/html"},
	},
	{Code: "internal_error"},
	{Reset: true},
	{Accept: true, Reset: true},
}

// brownOut fails three of five posts for a time, whatever they say. No event may end dead because of it.
func (d *deployment) brownOut(ctx context.Context, length time.Duration) {
	begun := time.Now()
	d.treatPosts(func(r devstack.Request) *devstack.Response {
		if !r.IsPost() || rand.IntN(100) >= 60 {
			return nil
		}
		return &failures[rand.IntN(len(failures))]
	})
	wait.For(ctx, length)
	d.treatPosts(nil)
	d.faults.note(faultBrownOut, "", begun)
}

// refuseChannel refuses two posts because of their channel, which are too few to close it.
func (d *deployment) refuseChannel(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	refusal := devstack.Response{Code: badChannel}
	d.treatPosts(devstack.Next(refusal, refusal))
	wait.For(ctx, between(random, 500*time.Millisecond, 1500*time.Millisecond))
	d.faults.note(faultRefuses, "", begun)
}

// limitChannels lets each channel take one post a second, as Slack documents it, or so many that workers with
// a pace stay below it, and answers the others there with 429.
func (d *deployment) limitChannels(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	count := []int{1, 8}[random.IntN(2)]
	d.slack.SetLimit(ratelimit.Limit{{Count: count, Window: time.Second}}, 0)
	wait.For(ctx, between(random, 2*time.Second, 4*time.Second))
	d.slack.SetLimit(nil, 0)
	d.faults.note(faultChannels, "", begun)
}

// refuseWhatArrived accepts posts without an answer, and refuses them when they come again: such an event is
// dead, may be in the channel, and has to keep its slot.
func (d *deployment) refuseWhatArrived(ctx context.Context, random *rand.Rand) {
	defer d.hideChannel()() // else they would be found there
	begun, accepted := time.Now(), d.slack.Accepted()
	d.treatPosts(devstack.Always(devstack.Response{Accept: true, Reset: true}))
	kit.Within(2*time.Second, func() bool { return d.slack.Accepted() >= accepted+3 || ctx.Err() != nil })
	d.faults.note(faultLost, "", begun)
	begun = time.Now()
	d.treatPosts(devstack.Always(devstack.Response{Code: badMessage}))
	wait.For(ctx, between(random, 800*time.Millisecond, 1500*time.Millisecond))
	d.treatPosts(nil)
	d.faults.note(faultRejects, "", begun)
}

// againstReading keeps workers from looking whether a post has arrived, half of the time: they find it or
// post again.
func (d *deployment) againstReading() []injector {
	return []injector{{1, func(ctx context.Context, random *rand.Rand) {
		defer d.hideChannel()()
		begun := time.Now()
		wait.For(ctx, between(random, 500*time.Millisecond, 2*time.Second))
		d.faults.note(faultBlind, "", begun)
	}}}
}

// hideChannel makes the channel unreadable until what it returns is called, and as long as somebody else
// wants it so.
func (d *deployment) hideChannel() (show func()) {
	change := func(by int) {
		d.hiding.Lock()
		defer d.hiding.Unlock()
		d.hidden += by
		d.unreadable.Store(d.hidden > 0 && !d.shown)
	}
	change(1)
	return func() { change(-1) }
}

// thawAll lets go what may still be stopped.
func (d *deployment) thawAll() {
	for _, k := range d.workers {
		_ = k.now().Command.Process.Signal(syscall.SIGCONT)
	}
}
