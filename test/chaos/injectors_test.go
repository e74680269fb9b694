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

// everyWorker is the target noted for the clean stop at the end of a run.
const everyWorker = "all, at the end"

// Error codes of refused posts. An event refused because of its message keeps its slot; one refused
// because of the channel does not.
const (
	badMessage = "msg_too_long"
	badChannel = "is_archived"
)

// injector injects one fault, waits, and repairs it, even if ctx ends early.
type injector struct {
	weight int
	inject func(ctx context.Context, random *rand.Rand)
}

// injectFaults runs random injectors of a lane, one at a time, until ctx ends. Lanes run concurrently, so
// each breaks its own things: workers, links, servers, posts to Slack, reads of the channel.
func injectFaults(ctx context.Context, random *rand.Rand, lane []injector) {
	var dice []int
	for i, n := range lane {
		dice = append(dice, slices.Repeat([]int{i}, n.weight)...)
	}
	for wait.For(ctx, between(random, 300*time.Millisecond, 1500*time.Millisecond)) {
		lane[dice[random.IntN(len(dice))]].inject(ctx, random)
	}
}

// injectAll runs all lanes until ctx ends. Each lane derives its own choice of faults from the seed.
func (d *deployment) injectAll(ctx context.Context, seed uint64, long bool) {
	var lanes sync.WaitGroup
	deadline, _ := ctx.Deadline()
	total := time.Until(deadline)
	for i, lane := range [][]injector{d.againstWorkers(), d.againstLinks(), d.againstReading(), d.operators()} {
		lanes.Go(func() { injectFaults(ctx, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	lanes.Go(func() {
		random := rand.New(rand.NewPCG(seed, 98))
		d.brownOut(ctx, min(total/3, time.Minute)) // in every run, long enough for an event to fail often
		injectFaults(ctx, random, d.againstSlack(long))
	})
	lanes.Go(func() { d.changePace(ctx, total) })
	injectFaults(ctx, rand.New(rand.NewPCG(seed, 99)), d.againstServers()) // may call FailNow
	lanes.Wait()
}

// changePace gives a pace to the processes that start in the second third of the run. So workers with and
// without a pace run side by side, and events wait for their turn during the faults.
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

// badLinks degrade a link without cutting it.
var badLinks = []toxic{
	{"latency", `"latency":300,"jitter":200`},
	{"latency", `"latency":900`},
	{"bandwidth", `"rate":2`},
	{"timeout", `"timeout":0`},     // all data is discarded
	{"timeout", `"timeout":700`},   // and then the connection is closed
	{"reset_peer", `"timeout":50`}, // the connection is reset after 50 ms
	{"limit_data", `"bytes":1500`}, // the connection is closed after 1500 bytes
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
				return // repeated restarts keep the store closed, and the ledger would miss admissions
			}
			begun := time.Now()
			d.redis.Stop(d.T)
			wait.For(ctx, between(random, 200*time.Millisecond, 2500*time.Millisecond))
			d.faults.note(faultRedis, "", begun) // Redis is back shortly before Restart notices
			d.redis.Restart(d.T)
		}},
		{1, func(ctx context.Context, _ *rand.Rand) {
			begun := time.Now()
			flush := func() error { return d.ledger.client.ScriptFlush(context.WithoutCancel(ctx)).Err() }
			var err error // after a restart the client may return the error of an earlier dial
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
			// A worker may create the consumer first, with the product's longer AckWait, which is fine.
			d.faults.complain(d.js.DeleteConsumer(ctx, streamName, consumerName))
			d.faults.complain(d.createConsumer(ctx))
			d.faults.note(faultConsumer, "", begun)
		}},
	}
}

// respond is the fake Slack's hook. Posts and reads of the channel fail independently.
func (d *deployment) respond(r devstack.Request) *devstack.Response {
	if r.IsHistory() && d.unreadable.Load() {
		return &devstack.Response{RetryAfter: "60"}
	}
	if hook := d.posts.Load(); hook != nil && *hook != nil {
		return (*hook)(r)
	}
	return nil
}

// treatPosts sets the hook for posts. Nil restores the fake Slack's own responses.
func (d *deployment) treatPosts(hook devstack.Hook) { d.posts.Store(&hook) }

// againstSlack injects faults into the fake Slack. A 429 without a Retry-After pauses all workers for
// half a minute, so only long runs include one. The same holds for long brown-outs.
func (d *deployment) againstSlack(long bool) []injector {
	always := d.slackAlways
	brownOut := func(from, to time.Duration) func(context.Context, *rand.Rand) {
		return func(ctx context.Context, random *rand.Rand) { d.brownOut(ctx, between(random, from, to)) }
	}
	storedAnd500 := devstack.Response{Accept: true, Status: http.StatusInternalServerError}
	lane := []injector{
		{2, always(faultSlack, devstack.Response{Status: http.StatusInternalServerError}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Response{Hang: true}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Response{Reset: true}, 300*time.Millisecond, time.Second)},
		{2, brownOut(2*time.Second, 5*time.Second)},
		{2, always(faultLimited, devstack.Response{RetryAfter: "1"}, 100*time.Millisecond, 500*time.Millisecond)},
		{3, d.limitChannels},
		{2, always(faultLost, devstack.Response{Accept: true, Reset: true}, 20*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultLost, devstack.Response{Accept: true, Hang: true}, 100*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultLost, storedAnd500, 20*time.Millisecond, 300*time.Millisecond)},
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

// slackAlways sets one response to all posts for a random time between from and to.
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

// failures blame neither the channel nor the workspace. The last one stores the message.
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

// brownOut fails three of five posts, regardless of content. No event may end dead because of it.
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

// refuseChannel refuses two posts because of their channel, too few for a worker to close it.
func (d *deployment) refuseChannel(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	refusal := devstack.Response{Code: badChannel}
	d.treatPosts(devstack.Next(refusal, refusal))
	wait.For(ctx, between(random, 500*time.Millisecond, 1500*time.Millisecond))
	d.faults.note(faultRefuses, "", begun)
}

// limitChannels limits each channel to one post a second, as Slack documents it, or to eight, which
// workers with a pace do not exceed. Further posts get a 429.
func (d *deployment) limitChannels(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	count := []int{1, 8}[random.IntN(2)]
	d.slack.SetLimit(ratelimit.Limit{{Count: count, Window: time.Second}}, 0)
	wait.For(ctx, between(random, 2*time.Second, 4*time.Second))
	d.slack.SetLimit(nil, 0)
	d.faults.note(faultChannels, "", begun)
}

// refuseWhatArrived stores posts without a response, and refuses them when they are repeated. Such an
// event is dead, may be in the channel, and has to keep its slot.
func (d *deployment) refuseWhatArrived(ctx context.Context, random *rand.Rand) {
	defer d.hideChannel()() // otherwise the workers would find the posts there
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

// againstReading makes the channel unreadable about half of the time. A worker then cannot find its post,
// and posts again.
func (d *deployment) againstReading() []injector {
	return []injector{{1, func(ctx context.Context, random *rand.Rand) {
		defer d.hideChannel()()
		begun := time.Now()
		wait.For(ctx, between(random, 500*time.Millisecond, 2*time.Second))
		d.faults.note(faultBlind, "", begun)
	}}}
}

// hideChannel makes the channel unreadable until show is called. If several callers hide it, it stays
// hidden until the last of them shows it.
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

// thawAll resumes processes that may still be frozen.
func (d *deployment) thawAll() {
	for _, k := range d.workers {
		_ = k.now().Command.Process.Signal(syscall.SIGCONT)
	}
}
