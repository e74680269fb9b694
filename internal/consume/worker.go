// Package consume is the worker: it takes events from NATS, has them decided, posts those that may be posted, and
// settles each one. Worker.process is the way of a batch, top to bottom; post.go goes on with what was admitted.
//
//	NATS ── source ── event.Decode ── Limiter.Admit (one call per batch) ── Poster.Post ── settle
//	                       │                  │ refused                           │
//	                       └─ dead letter     └─ dropped                          └─ sent | dead | held
//
// Everything before settle returns a value; settle alone logs, counts and acknowledges. Whatever is away (Redis,
// Slack, NATS), events are held: kept in hand, kept alive with the server, in a bounded number, and neither dropped
// nor decided twice.
package consume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"notifier/internal/event"
	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// Limiter decides and keeps the record of what was decided; see package ratelimit.
type Limiter interface {
	Check(ctx context.Context) error
	Ready(ctx context.Context) error
	Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error)
	Begin(ctx context.Context, request ratelimit.Request, known, name string, longest time.Duration) (ratelimit.Permit, error)
	Sent(ctx context.Context, request ratelimit.Request) error
	Refund(ctx context.Context, request ratelimit.Request) (bool, error)
	ClockLag() time.Duration
}

// Pause is the time during which no replica posts; see package ratelimit.
type Pause interface {
	Extend(ctx context.Context, d time.Duration) error
	Lift(ctx context.Context) error
}

// Poster makes one attempt to post, and looks whether an earlier one has arrived; see package slackout.
type Poster interface {
	Channel(ev event.Event) string
	Post(ctx context.Context, ev event.Event) (slackout.Receipt, error)
	Find(ctx context.Context, ev event.Event) (slackout.Receipt, bool, error)
}

// Settings of a Worker. Exactly one of JetStream and Core is set.
type Settings struct {
	JetStream *JetStream
	Core      *Core

	Rules           event.Rules   // what Decode accepts
	MaxAge          time.Duration // older events are dropped as expired; 0: never
	BatchSize       int           // most events in one script call, 1 to 1000
	Concurrency     int           // posts in flight, 1 or more
	ShutdownTimeout time.Duration // how long Run goes on after its context has ended
	DroppedSubject  string        // dropped events are republished to <it>.<category>; empty: they are not
	PostTimeout     time.Duration // how long one post may take: none begins when less than that is left of the former

	Limiter Limiter
	Pause   Pause
	Poster  Poster
	Log     *zap.Logger
	Observe func(Settled) // called for each settled event after its log line, by several goroutines; may be nil
}

// Worker is one replica. Make it with New, run it once.
type Worker struct {
	settings   Settings
	deadLetter string
	limiter    Limiter
	pause      Pause
	poster     Poster
	log        *zap.Logger
	observe    func(Settled)

	hand     *hand
	waits    *waits
	gate     *gate
	channels *channels
	history  history
	archive  *archive // nil: dropped events are not republished
	source   source
	posts    chan admitted

	name     string        // of this run of the worker, among all that there ever were
	begun    atomic.Uint64 // posts that were asked for; with the name it names each of them
	scratch  scratch       // of process alone
	running  atomic.Bool   // Redis is suitable and the source runs
	progress atomic.Int64  // Unix nanoseconds of the loop's last sign of life
}

// source hands deliveries out and takes their acknowledgements.
type source interface {
	run(ctx context.Context) error // adds deliveries to the hand until ctx ends
	bound() bool                   // it is subscribed
	keepAlive(ctx context.Context) // keeps what is in hand from being handed out again
	acknowledge(deliveries []*delivery) error
	terminate(d *delivery, reason string) error
	handBack(held int, replies []string) error // what was held at the end, and where to say so
	bury(ctx context.Context, letters []*nats.Msg) error
	lost() int64                                 // events that came and could not be kept
	pending(ctx context.Context) (uint64, error) // events that nobody has taken yet
}

// handBatches is how many batches a worker holds at most: one that is decided, one that is settled, and enough
// behind them that the loop need not wait for the server.
const handBatches = 4

// New makes a Worker and connects to nothing.
func New(settings Settings) (*Worker, error) {
	w := &Worker{
		settings: settings,
		limiter:  settings.Limiter, pause: settings.Pause, poster: settings.Poster,
		log: settings.Log, observe: settings.Observe,
		name: rand.Text()[:12], gate: newGate(), channels: newChannels(settings.Log),
	}
	capacity := handBatches * settings.BatchSize
	w.hand = newHand(capacity)
	w.waits = newWaits(settings.Log, w.hand.size)
	w.posts = make(chan admitted, capacity) // never full: nothing is in it that is not in hand
	w.stamp()
	switch {
	case settings.JetStream != nil && settings.Core == nil:
		w.deadLetter = settings.JetStream.DeadLetter
		source, err := newJetStreamSource(*settings.JetStream, w.hand, w.waits, w.log, w.pulledEnough)
		if err != nil {
			return nil, err
		}
		w.source = source
	case settings.Core != nil && settings.JetStream == nil:
		w.deadLetter = settings.Core.DeadLetter
		w.source = &coreSource{Core: *settings.Core, hand: w.hand, waits: w.waits, log: w.log}
	default:
		return nil, errors.New("expected exactly one of JetStream and Core")
	}
	if settings.DroppedSubject != "" {
		w.archive = newArchive(settings.DroppedSubject, w.letter, w.connection().PublishMsg, w.log)
	}
	return w, nil
}

// pulledEnough stops pulling while what was pulled cannot go on.
func (w *Worker) pulledEnough() bool {
	return w.gate.closed() || len(w.waits.reasons(waitRedis, waitDeadLetter)) > 0
}

// Run works until ctx ends and everything in hand is settled, or ShutdownTimeout has passed after that; what is
// unfinished then is handed back for redelivery. It returns an error only when it cannot go on: settings that a server
// contradicts, or a NATS connection that is closed for good.
func (w *Worker) Run(ctx context.Context) error {
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	last, endLast := context.WithCancel(context.WithoutCancel(ctx))
	defer endLast()
	endSoon := func() {
		timeout := w.settings.ShutdownTimeout
		time.AfterFunc(timeout-min(w.settings.PostTimeout, timeout/2), endWork)
		time.AfterFunc(timeout, endLast)
	}
	defer context.AfterFunc(ctx, endSoon)()

	if err := w.checkStore(ctx); err != nil {
		return err
	}
	sourceDone := make(chan error, 1)
	go func() {
		err := w.source.run(ctx)
		if err != nil { // what is in hand cannot be settled any more, or not for long
			endSoon()
		}
		sourceDone <- err
		w.hand.close()
	}()
	w.running.Store(true)
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if w.archive != nil {
		defer w.archive.start()()
	}
	go w.source.keepAlive(alive) // until the end: what is in hand while draining must not be handed out again

	var posters sync.WaitGroup
	for range w.settings.Concurrency {
		posters.Go(func() { w.postAll(work, last) })
	}
	w.loop(work)
	close(w.posts)
	posters.Wait()

	w.running.Store(false)
	err := <-sourceDone
	held, replies := w.hand.rest()
	if handBackErr := w.source.handBack(held, replies); handBackErr != nil && err == nil {
		w.log.Warn("events are left for redelivery", zap.Error(handBackErr))
	}
	return err
}

// checkStore waits until Redis is there. It fails only on a Redis that will never do.
func (w *Worker) checkStore(ctx context.Context) error {
	for {
		err := w.limiter.Check(ctx)
		if err == nil {
			w.waits.end(waitRedis)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ratelimit.ErrUnsuitable) {
			return err
		}
		w.waits.begin(waitRedis, err)
		w.stamp()
		if !sleep(ctx, jitter(bindRetry)) {
			return nil
		}
	}
}

// loop takes what is waiting, batch by batch, until nothing more comes.
func (w *Worker) loop(ctx context.Context) {
	for {
		w.stamp()
		batch, err := w.hand.take(ctx, w.settings.BatchSize, time.Second)
		if err != nil {
			return
		}
		if len(batch) == 0 {
			if w.hand.done() {
				return
			}
			w.waits.remind()
			if w.hand.size() == 0 && !w.gate.closed() {
				w.waits.end(waitSlack) // what was held is dropped: nobody waits any more
			}
			continue
		}
		crash(afterPull)
		if err := w.process(ctx, batch); err != nil {
			return
		}
	}
}

// process is the way of a batch: decode, decide, settle what is refused, pass on what is admitted. It fails only when
// ctx ends.
func (w *Worker) process(ctx context.Context, batch []*delivery) error {
	var dead []Settled
	settled, candidates, requests := w.scratch.settled[:0], w.scratch.candidates[:0], w.scratch.requests[:0]
	for _, d := range batch {
		ev, rejection := event.Decode(d.Message, w.settings.Rules)
		switch {
		case rejection != nil:
			dead = append(dead, Settled{Event: ev, Outcome: outcome.Dead, Reason: rejection.Reason, Detail: rejection.Detail, delivery: d})
		case w.settings.MaxAge > 0 && time.Since(ev.Time) > w.settings.MaxAge:
			settled = append(settled, Settled{Event: ev, Outcome: outcome.Dropped, Reason: outcome.Expired, delivery: d})
		default:
			request := ratelimit.Request{ID: ev.ID, Delivery: d.token, Category: ev.Category, Cost: ev.Cost}
			candidates = append(candidates, admitted{event: ev, delivery: d, request: request})
			requests = append(requests, request)
		}
	}
	if err := w.bury(ctx, dead); err != nil {
		return err
	}
	decisions, err := w.decide(ctx, requests)
	if err != nil {
		return err
	}
	if len(decisions) > 0 {
		crash(afterVerdict)
	}
	asked := time.Now()
	for i, decision := range decisions {
		if decision.Outcome == ratelimit.Admitted {
			candidates[i].asked = asked
			w.posts <- candidates[i]
		} else {
			dropped := refused(candidates[i].event, candidates[i].delivery, decision)
			dropped.Decided = asked
			settled = append(settled, dropped)
		}
	}
	settled = append(settled, dead...)
	w.settle(settled)
	w.scratch = scratch{settled: settled, candidates: candidates, requests: requests}
	return nil
}

// scratch is the room in which process works, kept from batch to batch: in a storm it would be most of the garbage.
type scratch struct {
	settled    []Settled
	candidates []admitted
	requests   []ratelimit.Request
}

// decide asks the limiter until it answers. It fails only when ctx ends.
func (w *Worker) decide(ctx context.Context, requests []ratelimit.Request) ([]ratelimit.Decision, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	var decisions []ratelimit.Decision
	err := w.hold(ctx, waitRedis, func() (err error) {
		decisions, err = w.limiter.Admit(ctx, requests)
		return err
	})
	if err == nil {
		w.noteClock(w.limiter.ClockLag())
	}
	return decisions, err
}

// grossStep is how far the clock of Redis may be set back without a line in the log: what time synchronisation does.
const grossStep = time.Second

// noteClock tells when the clock of Redis has been set back, and when it has caught up.
func (w *Worker) noteClock(lag time.Duration) {
	if lag < grossStep {
		w.waits.end(WaitClock)
		return
	}
	w.waits.begin(WaitClock, fmt.Errorf("the clock of Redis was set back by %s or more; windows stand still until it has caught up", lag.Round(time.Millisecond)))
}

// refused tells a decision other than Admitted in the words of an outcome.
func refused(ev event.Event, d *delivery, decision ratelimit.Decision) Settled {
	settled := Settled{Event: ev, Outcome: outcome.Dropped, delivery: d, Tier: decision.Tier, RetryAfter: decision.RetryAfter}
	switch decision.Outcome {
	case ratelimit.Duplicate:
		settled.Reason = outcome.Duplicate
	case ratelimit.Global:
		settled.Reason = outcome.Global
	case ratelimit.Category:
		settled.Reason = outcome.Category
	default:
		panic(fmt.Sprintf("consume: a decision without an outcome: %+v", decision))
	}
	return settled
}

// retryPause is the time between two attempts to reach Redis or the dead-letter stream.
const retryPause = 500 * time.Millisecond

// hold repeats attempt until it succeeds, and tells what is waited for. It fails only when ctx ends.
func (w *Worker) hold(ctx context.Context, what string, attempt func() error) error {
	for {
		err := attempt()
		if err == nil {
			w.waits.end(what)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.waits.begin(what, err)
		w.stamp()
		if !sleep(ctx, jitter(retryPause)) {
			return ctx.Err()
		}
	}
}

func (w *Worker) connection() *nats.Conn {
	if w.settings.Core != nil {
		return w.settings.Core.Connection
	}
	return w.settings.JetStream.Connection
}

// sleep waits for d and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter spreads a pause between half and one and a half of it, so that replicas do not retry in step.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }
