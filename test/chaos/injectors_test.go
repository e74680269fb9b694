package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"notifier/internal/consume/wait"
	"notifier/internal/devstack"
	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// The kinds of faults.
const (
	faultKill     = "kill"
	faultStop     = "stop"
	faultTerm     = "clean restart"
	faultCut      = "cut"
	faultSlow     = "bad link"
	faultRedis    = "redis restart"
	faultEmpty    = "redis empty restart"
	faultFailover = "redis failover"
	faultPrimary  = "redis primary"
	faultScripts  = "script flush"
	faultNATS     = "nats restart"
	faultConsumer = "consumer deleted"
	faultSlack    = "slack unavailable"
	faultBrownOut = "slack brown-out"
	faultLimited  = "slack 429"
	faultChannels = "slack limits each channel"
	faultLost     = "slack accepts and resets"
	faultRejects  = "slack rejects"
	faultRefuses  = "slack refuses the channel"
	faultBlind    = "channel unreadable"
	faultMute     = "mute"
	faultWhile    = "temporary limit"
)

// The codes with which Slack refuses posts: because of the message, which keeps its slot, and because of the
// channel.
const (
	badMessage = "msg_too_long"
	badChannel = "is_archived"
)

// nemesis breaks one thing, keeps it broken for a while, and repairs it, even if ctx ends before that.
type nemesis struct {
	weight int
	strike func(ctx context.Context, random *rand.Rand)
}

// rampage runs a lane of nemeses, one after the other, until ctx ends. Lanes run side by side, and each has things of its
// own to break: workers, links, servers, posts to Slack, looks at its channel.
func rampage(ctx context.Context, random *rand.Rand, lane []nemesis) {
	var dice []int
	for i, n := range lane {
		dice = append(dice, slices.Repeat([]int{i}, n.weight)...)
	}
	for wait.For(ctx, between(random, 300*time.Millisecond, 1500*time.Millisecond)) {
		lane[dice[random.IntN(len(dice))]].strike(ctx, random)
	}
}

// unleash runs all lanes until ctx ends. Each lane has its own choice of faults from the seed.
func (w *world) unleash(ctx context.Context, seed uint64, long bool) {
	var lanes sync.WaitGroup
	deadline, _ := ctx.Deadline()
	total := time.Until(deadline)
	for i, lane := range [][]nemesis{w.againstWorkers(), w.againstLinks(), w.againstReading(), w.steers()} {
		lanes.Go(func() { rampage(ctx, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	lanes.Go(func() {
		random := rand.New(rand.NewPCG(seed, 98))
		w.brownOut(ctx, min(total/3, time.Minute)) // each run has one, and time for an event to fail often
		rampage(ctx, random, w.againstSlack(long))
	})
	lanes.Go(func() { w.changePace(ctx, total) })
	rampage(ctx, rand.New(rand.NewPCG(seed, 99)), w.againstServers()) // here, because it may end the test
	lanes.Wait()
}

// changePace gives the processes that are started in the second third of the time a pace. So there are replicas with one and
// without side by side, and events wait for their turn while everything breaks.
func (w *world) changePace(ctx context.Context, d time.Duration) {
	wait.For(ctx, d/3)
	w.paced.Store(true)
	wait.For(ctx, d/3)
	w.paced.Store(false)
}

func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

func (w *world) againstWorkers() []nemesis {
	pick := func(random *rand.Rand) *worker { return w.workers[random.IntN(len(w.workers))] }
	again := func(ctx context.Context, k *worker, pause time.Duration) {
		wait.For(ctx, pause)
		_, err := k.start()
		w.diary.complain(err)
	}
	return []nemesis{
		{5, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			w.diary.complain(k.now().kill())
			again(ctx, k, between(random, 100*time.Millisecond, time.Second))
			w.diary.note(faultKill, k.name, begun)
		}},
		{2, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			w.diary.complain(k.now().freeze())
			wait.For(ctx, w.ackWait+between(random, 300*time.Millisecond, 2*time.Second))
			w.diary.complain(k.now().thaw())
			w.diary.note(faultStop, k.name, begun)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			k := pick(random)
			begun := time.Now()
			w.diary.complain(k.now().terminate())
			again(ctx, k, between(random, 100*time.Millisecond, 500*time.Millisecond))
			w.diary.note(faultTerm, k.name, begun)
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

func (w *world) againstLinks() []nemesis {
	pick := func(random *rand.Rand) *link {
		server := []string{"nats", "redis", "slack"}[random.IntN(3)]
		return w.workers[random.IntN(len(w.workers))].links[server]
	}
	return []nemesis{
		{1, func(ctx context.Context, random *rand.Rand) {
			l := pick(random)
			begun := time.Now()
			l.cut()
			wait.For(ctx, between(random, 300*time.Millisecond, 4*time.Second))
			w.diary.complain(l.open())
			w.diary.note(faultCut, l.name, begun)
		}},
		{1, func(ctx context.Context, random *rand.Rand) {
			l, bad := pick(random), badLinks[random.IntN(len(badLinks))]
			begun := time.Now()
			l.cut()
			w.diary.complain(l.open(bad))
			wait.For(ctx, between(random, 500*time.Millisecond, 3*time.Second))
			l.cut()
			w.diary.complain(l.open())
			w.diary.note(faultSlow, l.name+" "+bad.kind, begun)
		}},
	}
}

func (w *world) againstServers() []nemesis {
	return []nemesis{
		{2, func(ctx context.Context, random *rand.Rand) {
			if w.register.look(ctx) != nil && w.register.unseenFor() > w.register.mostUnseen()/3 {
				return // restarted again and again, Redis is never open to workers, and nobody sees what they are given
			}
			begun := time.Now()
			w.redis.Stop(w.T)
			wait.For(ctx, between(random, 200*time.Millisecond, 2500*time.Millisecond))
			w.diary.note(faultRedis, "", begun) // it answers somewhat before Restart knows
			w.redis.Restart(w.T)
		}},
		{1, func(ctx context.Context, _ *rand.Rand) {
			begun := time.Now()
			flush := func() error { return w.register.client.ScriptFlush(context.WithoutCancel(ctx)).Err() }
			var err error // after a restart the client may give the error of an earlier dial
			if !kit.Within(kit.Patience, func() bool { err = flush(); return err == nil }) {
				w.diary.complain(err)
			}
			w.diary.note(faultScripts, "", begun)
		}},
		{2, func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			w.nats.Stop()
			wait.For(ctx, between(random, 100*time.Millisecond, 2*time.Second))
			var err error
			if !kit.Within(kit.Patience, func() bool { err = w.nats.Start(); return err == nil }) {
				w.diary.complain(err)
			}
			w.diary.note(faultNATS, "", begun)
		}},
		{1, func(ctx context.Context, _ *rand.Rand) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kit.Patience)
			defer cancel()
			// A worker that is faster creates the consumer as the product does, with its longer AckWait; that is all right.
			w.diary.complain(w.js.DeleteConsumer(ctx, streamName, consumerName))
			w.diary.complain(w.createConsumer(ctx))
			w.diary.note(faultConsumer, "", begun)
		}},
	}
}

// againstSlack lets the fake Slack misbehave. Without a Retry-After a 429 is a pause of half a minute for all replicas,
// so that one is for long runs, as are long brown-outs.
func (w *world) againstSlack(long bool) []nemesis {
	always := func(kind string, b devstack.Behaviour, from, to time.Duration) func(context.Context, *rand.Rand) {
		return func(ctx context.Context, random *rand.Rand) {
			begun := time.Now()
			w.slack.Always(b)
			wait.For(ctx, between(random, from, to))
			w.slack.Always(devstack.Behaviour{})
			w.diary.note(kind, "", begun)
		}
	}
	brownOut := func(from, to time.Duration) func(context.Context, *rand.Rand) {
		return func(ctx context.Context, random *rand.Rand) { w.brownOut(ctx, between(random, from, to)) }
	}
	lane := []nemesis{
		{2, always(faultSlack, devstack.Behaviour{Status: http.StatusInternalServerError}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Behaviour{Hang: true}, 500*time.Millisecond, 2*time.Second)},
		{1, always(faultSlack, devstack.Behaviour{ResetBefore: true}, 300*time.Millisecond, time.Second)},
		{2, brownOut(2*time.Second, 5*time.Second)},
		{2, always(faultLimited, devstack.Behaviour{RetryAfter: "1"}, 100*time.Millisecond, 500*time.Millisecond)},
		{3, w.limitChannels},
		{2, always(faultLost, devstack.Behaviour{ResetAfter: true}, 20*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultLost, devstack.Behaviour{Accept: true, Hang: true}, 100*time.Millisecond, 300*time.Millisecond)},
		{1, always(faultRejects, devstack.Behaviour{Code: badMessage}, 50*time.Millisecond, 400*time.Millisecond)},
		{1, w.refuseChannel},
		{3, w.refuseWhatArrived},
	}
	if long {
		noTime := devstack.Behaviour{Status: http.StatusTooManyRequests}
		lane = append(lane,
			nemesis{1, always(faultLimited, noTime, 20*time.Millisecond, 50*time.Millisecond)},
			nemesis{1, brownOut(20*time.Second, time.Minute)},
		)
	}
	return lane
}

// failures are answers that blame neither the channel nor the workspace. After the last one the message is in Slack.
var failures = []devstack.Behaviour{
	{Status: http.StatusInternalServerError, ContentType: "text/html", Body: "<!DOCTYPE html><title>Slack is down</title>"},
	{Code: "internal_error"},
	{ResetBefore: true},
	{ResetAfter: true},
}

// brownOut fails three of five posts for a time, whatever they say. No event may end dead because of it.
func (w *world) brownOut(ctx context.Context, length time.Duration) {
	begun := time.Now()
	w.slack.Often(60, failures...)
	wait.For(ctx, length)
	w.slack.Always(devstack.Behaviour{})
	w.diary.note(faultBrownOut, "", begun)
}

// refuseChannel refuses two posts because of their channel, which are too few to close it.
func (w *world) refuseChannel(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	refusal := devstack.Behaviour{Code: badChannel}
	w.slack.Next(refusal, refusal)
	wait.For(ctx, between(random, 500*time.Millisecond, 1500*time.Millisecond))
	w.diary.note(faultRefuses, "", begun)
}

// limitChannels lets each channel take one post a second, as Slack documents it, or so many that workers with a pace stay
// below it, and answers the others there with 429.
func (w *world) limitChannels(ctx context.Context, random *rand.Rand) {
	begun := time.Now()
	count := []int{1, 8}[random.IntN(2)]
	w.diary.complain(w.slack.SetMode(devstack.Mode{ChannelLimit: ratelimit.Limit{{Count: count, Window: time.Second}}}))
	wait.For(ctx, between(random, 2*time.Second, 4*time.Second))
	w.diary.complain(w.slack.SetMode(devstack.Mode{}))
	w.diary.note(faultChannels, "", begun)
}

// refuseWhatArrived accepts posts without an answer, and refuses them when they come again: such an event is dead, may be
// in the channel, and has to keep its slot.
func (w *world) refuseWhatArrived(ctx context.Context, random *rand.Rand) {
	defer w.hideChannel()() // else they would be found there
	begun, accepted := time.Now(), w.slack.Accepted()
	w.slack.Always(devstack.Behaviour{ResetAfter: true})
	kit.Within(2*time.Second, func() bool { return w.slack.Accepted() >= accepted+3 || ctx.Err() != nil })
	w.diary.note(faultLost, "", begun)
	begun = time.Now()
	w.slack.Always(devstack.Behaviour{Code: badMessage})
	wait.For(ctx, between(random, 800*time.Millisecond, 1500*time.Millisecond))
	w.slack.Always(devstack.Behaviour{})
	w.diary.note(faultRejects, "", begun)
}

// againstReading keeps workers from looking whether a post has arrived, half of the time: they find it or post again.
func (w *world) againstReading() []nemesis {
	return []nemesis{{1, func(ctx context.Context, random *rand.Rand) {
		defer w.hideChannel()()
		begun := time.Now()
		wait.For(ctx, between(random, 500*time.Millisecond, 2*time.Second))
		w.diary.note(faultBlind, "", begun)
	}}}
}

// unreadable is a channel that workers may post to, and cannot look into now.
var unreadable = devstack.History{RetryAfter: "60"}

// hideChannel makes the channel unreadable until what it returns is called, and as long as somebody else wants it so.
func (w *world) hideChannel() (show func()) {
	change := func(by int) {
		w.hiding.Lock()
		defer w.hiding.Unlock()
		if w.hidden += by; w.hidden > 0 && !w.shown {
			w.slack.SetHistory(unreadable)
		} else {
			w.slack.SetHistory(devstack.History{})
		}
	}
	change(1)
	return func() { change(-1) }
}

// thawAll lets go what may still be stopped.
func (w *world) thawAll() {
	for _, k := range w.workers {
		_ = k.now().command.Process.Signal(syscall.SIGCONT)
	}
}
