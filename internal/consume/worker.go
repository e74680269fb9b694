package consume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/consume/post"
	"notifier/internal/consume/wait"
	"notifier/internal/ratelimit"
)

// Worker is one replica. Make it with New, run it once.
type Worker struct {
	settings Settings
	log      *zap.Logger

	tracker     *availability.Tracker
	feed        *feed.Feed
	sender      *post.Sender
	letterStore *letters.Store
	letters     *letters.Box
	republisher *republisher // nil: dropped events are not republished

	batch    batch          // used by process alone
	ensuring sync.WaitGroup // what ensureLetters has started
	ensures  atomic.Bool    // that is under way
	running  atomic.Bool    // Redis is suitable and the feed runs
	progress atomic.Int64   // Unix nanoseconds of the loop's last sign of life
}

// inflightBatches is how many batches a worker holds at most: one that is being decided, one that is being
// settled, and enough behind them that the loop need not wait for the server.
const inflightBatches = 4

// New makes a Worker and connects to nothing.
func New(settings Settings) (*Worker, error) {
	w := &Worker{settings: settings, log: settings.Log}
	w.stamp()
	w.tracker = availability.New(settings.Log, w.heldFor)
	capacity, budget := inflightBatches*settings.BatchSize, cmp.Or(settings.MaxBytes, feed.DefaultBudget)
	nats := settings.JetStream
	var err error
	w.feed, err = feed.New(feed.Settings{
		Connection: nats.connection(), Stream: nats.Stream, Consumer: nats.Consumer,
		Subject: nats.Subject, Replicas: nats.Replicas,
		Capacity: capacity, Budget: budget, MostPayload: settings.Rules.MaxBytes,
		MayFetch: w.mayFetch, Bound: w.ensureLetters, Tracker: w.tracker, Log: settings.Log,
	})
	if err != nil {
		return nil, err
	}
	w.letterStore, err = letters.NewStore(letters.StoreSettings{
		Connection: nats.connection(), Events: nats.Stream, Subject: nats.DeadLetter,
		MaxBytes: nats.DeadLetterBytes, Replicas: nats.Replicas, Tracker: w.tracker, Log: settings.Log,
	})
	if err != nil {
		return nil, err
	}
	w.letters = letters.NewBox(letters.BoxSettings{
		Put: w.letterStore.Put, Settle: w.settle, Tracker: w.tracker, Capacity: capacity, Budget: budget,
	})
	w.sender = post.New(post.Settings{
		Feed: w.feed, Limiter: settings.Limiter, Slack: settings.Slack, Letters: w.letters,
		Settle: w.settle, MuteOf: w.muteOf, Refuse: refuse, CheckClock: w.checkClock,
		MaxAge: settings.MaxAge, Concurrency: settings.Concurrency, PostTimeout: settings.PostTimeout,
		Channels: settings.Channels, Pace: settings.Pace, LongestLater: settings.LongestLater,
		Capacity: capacity, Budget: budget, WorkerName: rand.Text()[:12], Tracker: w.tracker, Log: settings.Log,
	})
	if settings.DroppedSubject != "" {
		publish := nats.Connection.PublishMsg
		w.republisher = newRepublisher(settings.DroppedSubject, w.letterStore.Copy, publish, w.log)
	}
	return w, nil
}

// ensureLetters looks after the dead-letter stream in the background, until ctx ends, unless it does so
// already.
func (w *Worker) ensureLetters(ctx context.Context) {
	if !w.ensures.CompareAndSwap(false, true) {
		return
	}
	w.ensuring.Go(func() {
		defer w.ensures.Store(false)
		w.letterStore.Ensure(ctx)
	})
}

// Run works until ctx ends and everything in flight is settled, or ShutdownTimeout has passed after that;
// what is unfinished then is returned for redelivery. It fails only when it cannot go on: settings that a
// server contradicts, or a NATS connection that is closed for good.
func (w *Worker) Run(ctx context.Context) error {
	startCtx, finishCtx, endSoon, release := w.deadlines(ctx)
	defer release()
	if err := w.awaitRedis(ctx); err != nil {
		return err
	}
	if w.republisher != nil {
		defer w.republisher.start()()
	}
	stopKeepAlive := w.keepAlive(context.WithoutCancel(ctx))
	feedDone := make(chan error, 1)
	go func() {
		err := w.feed.Run(ctx)
		if err != nil { // what is in flight cannot be settled any more, or not for long
			endSoon()
		}
		w.ensuring.Wait()
		feedDone <- err
	}()
	finishLetters := w.letters.Start(finishCtx)
	w.running.Store(true)

	var posting sync.WaitGroup
	posting.Go(func() { w.sender.Run(startCtx, finishCtx) })
	w.loop(startCtx)
	w.sender.Close()
	posting.Wait()
	finishLetters()

	w.running.Store(false)
	err := <-feedDone
	stopKeepAlive()
	if returnErr := w.feed.HandBackAll(); returnErr != nil && err == nil {
		w.log.Warn("events are left for redelivery", zap.Error(returnErr))
	}
	return err
}

// keepAlive keeps what is in flight from being redelivered, also while the worker drains. stop ends that.
func (w *Worker) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.feed.KeepAlive(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// deadlines gives the two contexts of a shutdown that begins when ctx ends or endSoon is called. startCtx
// ends early enough that a post which began before it can end by itself; finishCtx ends ShutdownTimeout after
// the beginning.
func (w *Worker) deadlines(
	ctx context.Context,
) (startCtx, finishCtx context.Context, endSoon, release func()) {
	startCtx, endStart := context.WithCancel(context.WithoutCancel(ctx))
	finishCtx, endFinish := context.WithCancel(context.WithoutCancel(ctx))
	endSoon = func() {
		timeout := w.settings.ShutdownTimeout
		time.AfterFunc(timeout-min(w.settings.PostTimeout, timeout/2), endStart)
		time.AfterFunc(timeout, endFinish)
	}
	stop := context.AfterFunc(ctx, func() {
		w.sender.Stopping()
		endSoon()
	})
	return startCtx, finishCtx, endSoon, func() {
		stop()
		endStart()
		endFinish()
	}
}

// awaitRedis waits until Redis is available. It fails only on a Redis that will never be suitable.
func (w *Worker) awaitRedis(ctx context.Context) error {
	for {
		err := w.settings.Limiter.Check(ctx)
		if err == nil && w.settings.Mutes != nil { // nothing muted may be posted before that is known
			err = w.settings.Mutes.Load(ctx)
		}
		switch {
		case err == nil:
			w.tracker.Recovered(availability.Redis)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ratelimit.ErrUnsuitable):
			return err
		}
		w.tracker.Lost(availability.Redis, err)
		w.stamp()
		if !wait.For(ctx, wait.Jitter(availability.RetryPause)) {
			return nil
		}
	}
}

// mayFetch is the one place that decides whether more events are fetched: not while nothing that is in flight
// can go on. A channel that takes no posts is no reason: its events wait in their lane, or go back to the
// server.
func (w *Worker) mayFetch() bool {
	return !w.sender.Paused() && !w.tracker.Unavailable(availability.Redis)
}

// idleCheck is how often the loop looks after what waits, also when nothing arrives.
const idleCheck = 500 * time.Millisecond

// In a storm that many replicas share, each of them gets a few events at a time, and a batch of a few costs
// as much as one of many. So where events come faster than one by one, the next batch waits a moment for more
// of them: for a whole batch while the stream has them, else for gatherEvents. A single event waits for
// nothing.
const (
	gatherEvents = 64
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
			w.tracker.Remind()
			w.sender.ForgetIdle()
			w.askRedisAgain(ctx)
		}
		if taken > 1 {
			w.feed.Gather(ctx, w.worthWaitingFor(), gatherTime)
		}
		batch, err := w.feed.Take(ctx, w.settings.BatchSize, idleCheck)
		taken = len(batch)
		if err != nil {
			return
		}
		if len(batch) == 0 {
			if w.feed.Done() {
				return
			}
			w.sender.HandBackExcess()
			continue
		}
		crash.At(crash.AfterPull)
		if err := w.process(ctx, batch); err != nil {
			return
		}
		w.sender.HandBackExcess()
	}
}

// worthWaitingFor is how many events the next batch waits for.
func (w *Worker) worthWaitingFor() int {
	if w.feed.Behind() {
		return w.settings.BatchSize
	}
	return min(w.settings.BatchSize, gatherEvents)
}

// redisUntold is longer than the time between two attempts of anything that needs Redis.
var redisUntold = 4 * time.Second

// askRedisAgain asks Redis whether it is available again when nothing else does. The last to meet it
// unavailable may have been a post whose channel has been paused since, for minutes; and as long as it counts
// as unavailable nothing is pulled that would have to be decided.
func (w *Worker) askRedisAgain(ctx context.Context) {
	if !w.tracker.Untold(availability.Redis, redisUntold) {
		return
	}
	if err := w.settings.Limiter.Ready(ctx); err == nil {
		w.tracker.Recovered(availability.Redis)
	} else if ctx.Err() == nil {
		w.tracker.Lost(availability.Redis, err)
	}
}
