// Package letters keeps dead events, which can never be sent, as letters in a stream of their own.
//
// A letter is a message with the payload and headers of the event, plus headers of notifier that name the
// reason, the time and the subject that the event came from. An operator lists letters, shows one, replays
// them to that subject or deletes them.
//
// In a worker, a dead event passes through three steps, and each is retried until it succeeds: the
// dead-letter stream stores its letter, Redis releases the event if Slack had refused it, and the worker logs
// and acknowledges it. In this order a crash between two steps loses nothing. A letter that is stored again
// stays one letter for as long as the stream remembers its message ID, two minutes by default: the ID is made
// of the event's place in its stream.
//
// The dead-letter stream may be full, missing or forbidden for days. Sendable events must not notice. A Box
// therefore holds dead events beside the worker's loop, limits how many letters a minute the undecodable
// events of a category may write, and returns undecodable events to the server before they fill the worker.
package letters

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
)

const (
	// undecodableShare bounds undecodable events in the box to this part of the worker's capacity and budget.
	undecodableShare = 4
	// groupSize bounds the letters of one attempt. Letters that fail until a timeout delay others by one
	// group.
	groupSize  = 32
	firstRetry = 500 * time.Millisecond
	maxRetry   = 5 * time.Second
)

// returnDelay postpones the redelivery of an undecodable event for which the box has no room.
var returnDelay = 30 * time.Second

// BoxSettings connect a Box to its worker.
type BoxSettings struct {
	// Put stores letters and returns one error for each, see Store.Put.
	Put func(ctx context.Context, dead []result.Result) []error
	// Settle logs and acknowledges events after their letters are stored. It returns an error only if ctx is
	// done. One goroutine calls it.
	Settle  func(context.Context, []*result.Result) error
	Tracker *availability.Tracker
	// Capacity and Budget bound the events and bytes that the worker holds, dead or not.
	Capacity int
	Budget   int64
}

// Box holds dead events until the dead-letter stream has stored their letters, then settles them. It never
// gives up a letter.
type Box struct {
	settings BoxSettings
	later    func(*feed.Delivery, time.Duration) bool // Delivery.Later
	quotas   *quotas                                  // used by Offer alone, on one goroutine
	arrived  chan struct{}                            // wakes run
	closed   chan struct{}

	mu               sync.Mutex
	held             []*deadEvent // oldest first
	undecodable      int
	undecodableBytes int64
}

// deadEvent is an event in the box. After Offer or Keep only run uses its fields.
type deadEvent struct {
	result      result.Result
	undecodable bool
	stored      bool                        // the stream has the letter
	after       func(context.Context) error // runs between storing and settling. Nil if there is nothing to do.

	failure error // of the last attempt to store the letter
	tries   int   // failed attempts at the current step
	next    time.Time
	backoff backoff.ExponentialBackOff
}

// NewBox returns a Box that accepts events. Start lets it store their letters.
func NewBox(settings BoxSettings) *Box {
	return &Box{
		settings: settings,
		later:    (*feed.Delivery).Later,
		quotas:   newQuotas(),
		arrived:  make(chan struct{}, 1),
		closed:   make(chan struct{}),
	}
}

// Offer takes over an undecodable event. It returns false if the category has used its rate of letters; the
// caller then settles the event without one. An event without room in the box goes back to the server. If the
// server cannot take it, the box holds it all the same.
func (b *Box) Offer(r result.Result) bool {
	// A redelivered event was counted at its first delivery.
	if !r.Delivery.Redelivered.Load() && !b.quotas.take(letterCategory(&r), time.Now()) {
		return false
	}
	if b.hasRoom() || !b.later(r.Delivery, returnDelay) {
		b.add(&deadEvent{result: r, undecodable: true})
	}
	return true
}

// hasRoom reports whether undecodable events take less than their share.
func (b *Box) hasRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.undecodable < max(1, b.settings.Capacity/undecodableShare) &&
		b.undecodableBytes < max(1, b.settings.Budget/undecodableShare)
}

// hasExcess reports whether undecodable events take more than their share. One is always held, however large.
func (b *Box) hasExcess() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.undecodable > 1 && (b.undecodable > b.settings.Capacity/undecodableShare ||
		b.undecodableBytes > b.settings.Budget/undecodableShare)
}

// returnExcess returns the newest undecodable events without a letter until the others fit into their share.
// The server may have declined when they came.
func (b *Box) returnExcess() {
	for _, e := range slices.Backward(b.events()) {
		if !b.hasExcess() {
			return
		}
		if !e.undecodable || e.stored {
			continue
		}
		if !b.later(e.result.Delivery, returnDelay) {
			return
		}
		b.remove([]*deadEvent{e})
	}
}

// Keep takes over an event that Slack refused. The limits bound such events, so each has a letter. The box
// never returns it to the server: it would be posted again. Once the letter is stored, after is retried until
// it succeeds; after may be nil.
func (b *Box) Keep(r result.Result, after func(context.Context) error) {
	b.add(&deadEvent{result: r, after: after})
}

func (b *Box) add(e *deadEvent) {
	e.result.Ended = time.Now()
	e.next = e.result.Ended
	e.backoff = backoff.ExponentialBackOff{
		InitialInterval: firstRetry, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: maxRetry,
	}
	b.mu.Lock()
	b.held = append(b.held, e)
	if e.undecodable {
		b.undecodable++
		b.undecodableBytes += e.result.Delivery.Bytes
	}
	b.mu.Unlock()
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// Size counts the events in the box.
func (b *Box) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

func (b *Box) events() []*deadEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.held)
}

// Start begins to store letters. finish tries each remaining event once more, until ctx is done, and returns.
func (b *Box) Start(ctx context.Context) (finish func()) {
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	return func() {
		close(b.closed)
		running.Wait()
	}
}

func (b *Box) run(ctx context.Context) {
	for {
		group, pause := b.due()
		b.attempt(ctx, group)
		b.returnExcess()
		select {
		case <-b.closed:
			b.attempt(ctx, b.events())
			return
		case <-b.arrived:
		case <-time.After(pause):
		}
	}
}

// due returns the next group to try, and the time until another one is due. Events with the fewest failures
// come first, so that events which fail for a reason of their own delay no others.
func (b *Box) due() (group []*deadEvent, pause time.Duration) {
	now := time.Now()
	pause = maxRetry
	for _, e := range b.events() {
		if wait := e.next.Sub(now); wait > 0 {
			pause = min(pause, wait)
		} else {
			group = append(group, e)
		}
	}
	slices.SortStableFunc(group, func(x, y *deadEvent) int { return cmp.Compare(x.tries, y.tries) })
	if len(group) > groupSize {
		group, pause = group[:groupSize], 0
	}
	return group, pause
}

// attempt stores, releases and settles each event of a group, and stops at the first step that fails.
func (b *Box) attempt(ctx context.Context, group []*deadEvent) {
	b.store(ctx, group)
	runAfter(ctx, group)
	b.settle(ctx, group)
}

// store stores the letters that are not stored yet.
func (b *Box) store(ctx context.Context, group []*deadEvent) {
	group = slices.DeleteFunc(slices.Clone(group), func(e *deadEvent) bool { return e.stored })
	if len(group) == 0 {
		return
	}
	dead := make([]result.Result, len(group))
	for i, e := range group {
		dead[i] = e.result
	}
	for i, err := range b.settings.Put(ctx, dead) {
		e := group[i]
		e.failure = err
		e.record(err)
		e.stored = err == nil
		e.result.LetterSeq = dead[i].LetterSeq
	}
	b.report(ctx)
}

// report tells the tracker whether the stream refuses letters. The feed reports a lost connection.
func (b *Box) report(ctx context.Context) {
	events := b.events()
	refused := slices.IndexFunc(events, func(e *deadEvent) bool { return e.failure != nil })
	switch {
	case refused < 0:
		b.settings.Tracker.Recovered(availability.DeadLetters)
	case ctx.Err() == nil && !errors.Is(events[refused].failure, errUnconnected):
		b.settings.Tracker.Lost(availability.DeadLetters, events[refused].failure)
	}
}

// runAfter runs the after functions of stored events. They run side by side, so that one which waits for a
// timeout of Redis delays the group by that timeout only.
func runAfter(ctx context.Context, group []*deadEvent) {
	var calls sync.WaitGroup
	for _, e := range group {
		if !e.stored || e.after == nil {
			continue
		}
		calls.Go(func() {
			err := e.after(ctx)
			e.record(err)
			if err == nil {
				e.after = nil
			}
		})
	}
	calls.Wait()
}

// settle settles and forgets the events of a group that have passed the other steps.
func (b *Box) settle(ctx context.Context, group []*deadEvent) {
	done := slices.Clone(group)
	done = slices.DeleteFunc(done, func(e *deadEvent) bool { return !e.stored || e.after != nil })
	if len(done) == 0 {
		return
	}
	batch := make([]*result.Result, len(done))
	for i, e := range done {
		batch[i] = &e.result
	}
	err := b.settings.Settle(ctx, batch)
	for _, e := range done {
		e.record(err)
	}
	if err == nil {
		b.remove(done)
	}
}

func (b *Box) remove(done []*deadEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(b.held, func(e *deadEvent) bool { return slices.Contains(done, e) })
	for _, e := range done {
		if e.undecodable {
			b.undecodable--
			b.undecodableBytes -= e.result.Delivery.Bytes
		}
	}
}

// record records the result of a step. A failed one is due again after a pause.
func (e *deadEvent) record(err error) {
	if err == nil {
		e.tries = 0
		e.backoff.Reset()
		return
	}
	e.tries++
	e.next = time.Now().Add(e.backoff.NextBackOff())
}
