package consume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/lanes"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/wait"
)

// Worker is one replica. Make it with New, run it once.
type Worker struct {
	settings Settings
	limiter  Limiter
	poster   Poster
	log      *zap.Logger
	observe  func([]Settled)

	inflight     *inflight
	availability *availability
	lanes        *lanes.Lanes[*posting] // what is admitted and waits to be posted
	refused      *refusedChannels
	lookups      lookups
	letterbox    *letterbox
	republisher  *republisher // nil: dropped events are not republished
	source       *jetStreamSource

	name     string        // of this run of the worker, unique among all that there ever were
	begun    atomic.Uint64 // posts that were asked for; with the worker's name it names each of them
	scratch  scratch       // used by process alone
	running  atomic.Bool   // Redis is suitable and the source runs
	stopping atomic.Bool   // no more is read
	progress atomic.Int64  // Unix nanoseconds of the loop's last sign of life
}

// inflightBatches is how many batches a worker holds at most: one that is being decided, one that is being settled, and
// enough behind them that the loop need not wait for the server.
const inflightBatches = 4

// New makes a Worker and connects to nothing.
func New(settings Settings) (*Worker, error) {
	w := &Worker{
		settings: settings,
		limiter:  settings.Limiter, poster: settings.Poster,
		log: settings.Log, observe: settings.Observe,
		name: rand.Text()[:12], refused: newRefusedChannels(settings.Log),
	}
	capacity := inflightBatches * settings.BatchSize
	w.inflight = newInflight(capacity)
	if settings.MaxBytes > 0 {
		w.inflight.budget = settings.MaxBytes
	}
	w.availability = newAvailability(newWaitLog(settings.Log, w.held))
	w.lanes = lanes.New[*posting](settings.Concurrency, laneBound(capacity, w.inflight.budget), laneBackoff, settings.Channels...)
	w.letterbox = newLetterbox(capacity, w.inflight.budget)
	w.stamp()
	var err error
	if w.source, err = newJetStreamSource(settings.JetStream, w.inflight, w.availability, w.log, w.mayPull); err != nil {
		return nil, err
	}
	w.source.mostPayload = settings.Rules.MaxBytes
	w.letterbox.store, w.letterbox.settle = w.storeLetters, w.settle
	w.letterbox.park, w.letterbox.availability = w.source.park, w.availability
	if settings.DroppedSubject != "" {
		w.republisher = newRepublisher(settings.DroppedSubject, w.letter, settings.JetStream.Connection.PublishMsg, w.log)
	}
	return w, nil
}

// Run works until ctx ends and everything in flight is settled, or ShutdownTimeout has passed after that; what is
// unfinished then is returned for redelivery. It fails only when it cannot go on: settings that a server contradicts, or a
// NATS connection that is closed for good.
func (w *Worker) Run(ctx context.Context) error {
	startCtx, finishCtx, endSoon, release := w.deadlines(ctx)
	defer release()
	if err := w.checkStore(ctx); err != nil {
		return err
	}
	if w.republisher != nil {
		defer w.republisher.start()()
	}
	aliveCtx, stopKeepAlive := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeepAlive()
	sourceDone := make(chan error, 1)
	go func() {
		err := w.source.run(ctx)
		if err != nil { // what is in flight cannot be settled any more, or not for long
			endSoon()
		}
		sourceDone <- err
		w.inflight.close()
	}()
	go w.source.keepAlive(aliveCtx) // until the end: what is in flight must not be redelivered while the worker drains
	finishLetters := w.letterbox.start(finishCtx)
	w.running.Store(true)

	var posters sync.WaitGroup
	for range w.settings.Concurrency {
		posters.Go(func() { w.postAll(startCtx, finishCtx) })
	}
	w.loop(startCtx)
	w.lanes.Close()
	posters.Wait()
	finishLetters()

	w.running.Store(false)
	err := <-sourceDone
	if returnErr := w.source.returnUnsettled(w.inflight.drain()); returnErr != nil && err == nil {
		w.log.Warn("events are left for redelivery", zap.Error(returnErr))
	}
	return err
}

// deadlines gives the two contexts of a shutdown that begins when ctx ends or endSoon is called. startCtx ends early enough
// that a post which began before it can end by itself; finishCtx ends ShutdownTimeout after the beginning.
func (w *Worker) deadlines(ctx context.Context) (startCtx, finishCtx context.Context, endSoon, release func()) {
	startCtx, endStart := context.WithCancel(context.WithoutCancel(ctx))
	finishCtx, endFinish := context.WithCancel(context.WithoutCancel(ctx))
	endSoon = func() {
		timeout := w.settings.ShutdownTimeout
		time.AfterFunc(timeout-min(w.settings.PostTimeout, timeout/2), endStart)
		time.AfterFunc(timeout, endFinish)
	}
	stop := context.AfterFunc(ctx, func() {
		w.stopping.Store(true)
		endSoon()
	})
	return startCtx, finishCtx, endSoon, func() {
		stop()
		endStart()
		endFinish()
	}
}

// checkStore waits until Redis is available. It fails only on a Redis that will never be suitable.
func (w *Worker) checkStore(ctx context.Context) error {
	for {
		err := w.limiter.Check(ctx)
		if err == nil && w.settings.Mutes != nil { // nothing muted may be posted before that is known
			err = w.settings.Mutes.Load(ctx)
		}
		switch {
		case err == nil:
			w.availability.recovered(redisScripts)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ratelimit.ErrUnsuitable):
			return err
		}
		w.availability.lost(redisScripts, err)
		w.stamp()
		if !wait.For(ctx, wait.Jitter(bindRetry)) {
			return nil
		}
	}
}

// mayPull is the one place that decides whether more events are pulled: not while nothing that is in flight can go on. A
// channel that takes no posts is no reason: its events wait in their lane, or go back to the server.
func (w *Worker) mayPull() bool {
	return !w.lanes.Closed() && !w.availability.unavailable(redisScripts)
}

// idleCheck is how often the loop looks after what waits, also when nothing arrives.
const idleCheck = 500 * time.Millisecond

// In a storm that many replicas share, each of them gets a few events at a time, and a batch of a few costs as much as one of many. So
// where events come faster than one by one, the next batch waits a moment for more of them. A single event waits for nothing.
const (
	gatherEvents = 64 // that are worth a batch: twice as many would save little
	gatherTime   = 25 * time.Millisecond
)

// loop takes what has arrived, batch by batch, until nothing more does.
func (w *Worker) loop(ctx context.Context) {
	var looked time.Time
	taken := 0 // events of the last batch
	for {
		w.stamp()
		if time.Since(looked) >= idleCheck {
			looked = time.Now()
			w.availability.remind()
			w.forgetIdleChannels()
			w.askRedisAgain(ctx)
		}
		if taken > 1 {
			w.inflight.gather(ctx, min(w.settings.BatchSize, gatherEvents), gatherTime)
		}
		batch, err := w.inflight.take(ctx, w.settings.BatchSize, idleCheck)
		taken = len(batch)
		if err != nil {
			return
		}
		if len(batch) == 0 {
			if w.inflight.done() {
				return
			}
			w.parkExcess()
			continue
		}
		crash(afterPull)
		if err := w.process(ctx, batch); err != nil {
			return
		}
		w.parkExcess()
	}
}

// redisUntold is longer than the time between two attempts of whoever needs Redis.
var redisUntold = 4 * time.Second

// askRedisAgain asks Redis whether it is available again where nobody else does. The last to meet it unavailable may have been
// a post whose channel has been paused since, for minutes; and as long as it counts as unavailable nothing is pulled that
// would have to be decided.
func (w *Worker) askRedisAgain(ctx context.Context) {
	if !w.availability.untold(redisScripts, redisUntold) {
		return
	}
	if err := w.limiter.Ready(ctx); err == nil {
		w.availability.recovered(redisScripts)
	} else if ctx.Err() == nil {
		w.availability.lost(redisScripts, err)
	}
}

// process is the way of a batch: decode, put what can never be sent into the letterbox, decide, settle what is refused, pass
// on what is admitted. It fails only when ctx ends.
func (w *Worker) process(ctx context.Context, batch []*delivery) error {
	settled, dead, candidates, requests := w.decode(batch)
	settled = append(settled, w.letterbox.offer(dead)...)
	settled, candidates, requests, err := w.dropMuted(ctx, settled, candidates, requests)
	if err != nil {
		return err
	}
	decisions, err := w.decide(ctx, requests)
	if err != nil {
		return err
	}
	asked := time.Now()
	for i, decision := range decisions {
		switch decision.Outcome {
		case ratelimit.Admitted:
			candidates[i].asked = asked
			w.enqueue(candidates[i])
		default:
			dropped := refused(candidates[i].event, candidates[i].delivery, decision)
			dropped.Decided = asked
			settled = append(settled, dropped)
		}
	}
	w.settle(settled)
	w.scratch.keep(settled, candidates, requests)
	return nil
}

// scratch is the room in which process works, kept from batch to batch: in a storm it would be most of the garbage.
type scratch struct {
	settled    []Settled
	candidates []admitted
	requests   []ratelimit.Request
}

// keep keeps the room, and nothing of what was in it: the largest batch would stay in memory.
func (s *scratch) keep(settled []Settled, candidates []admitted, requests []ratelimit.Request) {
	clear(settled)
	clear(candidates)
	clear(requests)
	s.settled, s.candidates, s.requests = settled[:0], candidates[:0], requests[:0]
}

// decode sorts a batch: what is settled without a decision, what can never be sent, and what the limiter is asked about
// (candidates, and the request for each).
func (w *Worker) decode(batch []*delivery) (settled, dead []Settled, candidates []admitted, requests []ratelimit.Request) {
	settled, candidates, requests = w.scratch.settled, w.scratch.candidates, w.scratch.requests
	for _, d := range batch {
		ev, rejection := event.Decode(d.Message, w.settings.Rules)
		switch {
		case rejection != nil && rejection.Reason == outcome.Reply:
			settled = append(settled, Settled{Event: ev, Outcome: outcome.Dropped, Reason: outcome.Reply, Detail: rejection.Detail, delivery: d})
		case rejection != nil:
			dead = append(dead, Settled{Event: ev, Outcome: outcome.Dead, Reason: rejection.Reason, Detail: rejection.Detail, delivery: d})
		case w.tooOld(ev) && !d.redelivered:
			settled = append(settled, Settled{Event: ev, Outcome: outcome.Dropped, Reason: outcome.Expired, delivery: d})
		default:
			if mute := w.muteOf(ev); mute != nil && !d.redelivered {
				settled = append(settled, mutedEvent(ev, d, mute))
				continue
			}
			request := requestFor(ev, d)
			candidates = append(candidates, admitted{event: ev, delivery: d, request: request})
			requests = append(requests, request)
		}
	}
	return settled, dead, candidates, requests
}

// decide asks the limiter until it answers. It fails only when ctx ends.
func (w *Worker) decide(ctx context.Context, requests []ratelimit.Request) ([]ratelimit.Decision, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	var decisions []ratelimit.Decision
	err := w.hold(ctx, redisScripts, func() (err error) {
		decisions, err = w.limiter.Admit(ctx, requests)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.redisDecided()
	crash(afterVerdict)
	return decisions, nil
}

// grossStep is how far the clock of Redis may be set back without a line in the log: what time synchronization does.
const grossStep = time.Second

// redisDecided notes that the script answers, and whether its clock was set back.
func (w *Worker) redisDecided() {
	w.availability.recovered(redisScripts)
	lag := w.limiter.ClockLag()
	if lag < grossStep {
		w.availability.recovered(redisClock)
		return
	}
	w.availability.lost(redisClock, fmt.Errorf("the clock of Redis was set back by %s or more; windows stand still until it has caught up", lag.Round(time.Millisecond)))
}

// refused puts a decision other than Admitted into the words of an outcome.
func refused(ev event.Event, d *delivery, decision ratelimit.Decision) Settled {
	settled := Settled{
		Event: ev, Outcome: outcome.Dropped, delivery: d,
		Tier: decision.Tier, RetryAfter: decision.RetryAfter, AtLeast: decision.AtLeast && !decision.Never,
		Never: decision.Never, Reserved: decision.Reserved,
	}
	switch decision.Outcome {
	case ratelimit.Duplicate:
		settled.Reason = outcome.Duplicate
	case ratelimit.Global:
		settled.Reason = outcome.Global
	case ratelimit.Group:
		settled.Reason = outcome.Group
	case ratelimit.Category:
		settled.Reason = outcome.Category
	default:
		panic(fmt.Sprintf("consume: a decision without an outcome: %+v", decision))
	}
	return settled
}

// retryPause is the time between two attempts to reach Redis.
var retryPause = 500 * time.Millisecond

// hold repeats a call until it succeeds, and reports what is unavailable meanwhile. It fails only when ctx ends.
func (w *Worker) hold(ctx context.Context, d dependency, call func() error) error {
	for {
		err := call()
		if err == nil {
			w.availability.recovered(d)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.availability.lost(d, err)
		w.stamp()
		if !wait.For(ctx, wait.Jitter(retryPause)) {
			return ctx.Err()
		}
	}
}
