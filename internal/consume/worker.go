package consume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"notifier/internal/cached"
	"notifier/internal/consume/availability"
	"notifier/internal/consume/crash"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/letters"
	"notifier/internal/consume/post"
	"notifier/internal/ratelimit"
	"notifier/internal/wait"
)

// Worker is one worker of the deployment. Make it with New, run it once.
type Worker struct {
	settings Settings
	log      *zap.Logger

	tracker     *availability.Tracker
	feed        *feed.Feed
	decider     *decide.Decider
	sender      *post.Sender
	letterStore *letters.Store
	letters     *letters.Box
	republisher *republisher            // nil unless dropped events are republished
	redis       *cached.Value[struct{}] // a ping

	batch    batch          // used by process alone
	ensuring sync.WaitGroup // ensureLetters
	ensures  atomic.Bool    // ensureLetters is running
	running  atomic.Bool    // Redis is suitable and the feed runs
	progress atomic.Int64   // Unix nanoseconds of the loop's last sign of life
}

// New makes a Worker and connects to nothing.
func New(settings Settings) (*Worker, error) {
	w := &Worker{settings: settings, log: settings.Log}
	w.stamp()
	w.tracker = availability.New(settings.Log, w.heldFor)
	capacity, budget := feed.BatchesHeld*settings.BatchSize, cmp.Or(settings.MaxBytes, feed.DefaultBudget)
	nats := settings.JetStream
	var err error
	w.feed, err = feed.New(feed.Settings{
		Connection: nats.connection(), Stream: nats.Stream, Consumer: nats.Consumer,
		Subject: nats.Subject, Namespace: nats.Namespace, Replicas: nats.Replicas, MaxBytes: nats.StreamBytes,
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
	w.decider = &decide.Decider{
		Limiter: settings.Limiter, Mutes: settings.Mutes, MaxAge: settings.MaxAge, Tracker: w.tracker,
	}
	w.redis = cached.New(0, pingTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, settings.Limiter.Ready(ctx)
	})
	w.sender = post.New(post.Settings{
		Decider: w.decider, Limiter: settings.Limiter, Slack: settings.Slack, Letters: w.letters, Settle: w.settle,
		Concurrency: settings.Concurrency, PostTimeout: settings.PostTimeout, Channels: settings.Channels,
		Capacity: capacity, Budget: budget, WorkerName: rand.Text()[:12], Tracker: w.tracker, Log: settings.Log,
	})
	if settings.DroppedSubject != "" {
		w.republisher = newRepublisher(settings.DroppedSubject, w.letterStore.Copy,
			nats.Connection.IsConnected, nats.Connection.PublishMsg, w.log)
	}
	return w, nil
}

// ensureLetters finds or creates the dead-letter stream in the background, until ctx is done.
func (w *Worker) ensureLetters(ctx context.Context) {
	if !w.ensures.CompareAndSwap(false, true) {
		return
	}
	w.ensuring.Go(func() {
		defer w.ensures.Store(false)
		w.letterStore.Ensure(ctx)
	})
}

// Run works until ctx is done. Then it settles everything in flight, for up to ShutdownTimeout, and returns
// unfinished events for redelivery. It returns an error if a server contradicts the settings, or if the NATS
// connection is closed for good.
func (w *Worker) Run(ctx context.Context) error {
	startCtx, finishCtx, endSoon, release := w.deadlines(ctx)
	defer release()
	if err := w.awaitRedis(ctx); err != nil {
		return err
	}
	if w.republisher != nil {
		defer w.republisher.start()()
	}
	w.checkLog() // before anything is fetched
	stopKeepAlive := w.keepAlive(context.WithoutCancel(ctx))
	feedDone := make(chan error, 1)
	go func() {
		err := w.feed.Run(ctx)
		if err != nil { // events in flight cannot be settled for much longer
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
	w.progress.Store(math.MaxInt64) // SHUTDOWN_TIMEOUT bounds the rest
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

// keepAlive keeps events in flight from being redelivered until stop is called, also while the worker drains.
func (w *Worker) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.feed.KeepAlive(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// deadlines returns the contexts of a shutdown, which begins when ctx is done or endSoon is called. finishCtx
// lasts for ShutdownTimeout more. startCtx ends early enough that a post which began before can end by itself.
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
	stop := context.AfterFunc(ctx, endSoon)
	return startCtx, finishCtx, endSoon, func() {
		stop()
		endStart()
		endFinish()
	}
}

// awaitRedis waits until Redis is available. It returns an error if this Redis can never be used.
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

// mayFetch reports whether to fetch more. It pauses while Redis, the workspace or the log is unavailable. A
// paused channel does not matter: its events wait in their lane.
func (w *Worker) mayFetch() bool {
	return !w.sender.Paused() && !w.tracker.Unavailable(availability.Redis, availability.Log)
}

// idleCheck is the pause between two looks at waits and at the log, also while nothing arrives.
const idleCheck = 500 * time.Millisecond

// In a storm that many workers share, each gets a few events at a time, and a small batch costs as much as a
// large one. So after a batch of several events the next one waits a moment for more: for a whole batch while
// the stream has them, else for gatherEvents. A single event waits for nothing.
const (
	gatherEvents = 64
	gatherTime   = 25 * time.Millisecond
)

// loop processes batches until nothing more arrives.
func (w *Worker) loop(ctx context.Context) {
	var looked time.Time
	taken := 0 // events of the last batch
	for {
		w.stamp()
		if time.Since(looked) >= idleCheck {
			looked = time.Now()
			w.tracker.Remind()
			w.sender.ForgetIdle()
			w.pingRedis(ctx)
			w.checkLog()
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
			continue
		}
		crash.At(crash.AfterPull)
		if err := w.process(ctx, batch); err != nil {
			return
		}
	}
}

// worthWaitingFor returns the number of events that the next batch waits for.
func (w *Worker) worthWaitingFor() int {
	if w.feed.Behind() {
		return w.settings.BatchSize
	}
	return min(w.settings.BatchSize, gatherEvents)
}

// redisQuiet is longer than the pause between two attempts to reach Redis.
var redisQuiet = 4 * time.Second

// pingRedis ends an outage of Redis that nothing else would end: the last attempt may have been a post to a
// channel that is paused since, and nothing is fetched meanwhile.
func (w *Worker) pingRedis(ctx context.Context) {
	if !w.tracker.Unreported(availability.Redis, redisQuiet) {
		return
	}
	if err := w.settings.Limiter.Ready(ctx); err == nil {
		w.tracker.Recovered(availability.Redis)
	} else if ctx.Err() == nil {
		w.tracker.Lost(availability.Redis, err)
	}
}
