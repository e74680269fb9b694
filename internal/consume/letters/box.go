package letters

import (
	"cmp"
	"context"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/result"
)

// Box keeps dead events until their letters are stored, apart from all other events: a dead-letter stream
// that refuses or does not answer must not stop what can be sent. It tries each letter until the stream has
// it, and only then settles the event, so that an event leaves one stream after it is safe in the other.
//
// What it holds is in flight. Undecodable events are bounded by a share of that: what exceeds it goes back to
// the server for later, or is settled without a letter. Those that Slack did not take are bounded by what the
// limits admit in a window, and at last by what may be in flight.
type Box struct {
	put     func(ctx context.Context, dead []result.Result) []error // Store.Put
	settle  func([]*result.Result)
	later   func(*feed.Delivery, time.Duration) bool // Delivery.Later
	tracker *availability.Tracker

	quotas *quotas // used by Offer alone, which the loop calls

	arrived chan struct{} // has a token when there may be more letters
	closed  chan struct{}

	mu          sync.Mutex
	pending     []*pendingLetter // in the order in which they came
	undecodable share

	postponed time.Time // used by run alone: what comes after a letter is not tried before
}

// BoxSettings are the surroundings of a Box.
type BoxSettings struct {
	Put     func(ctx context.Context, dead []result.Result) []error // stores letters, as Store.Put does
	Settle  func([]*result.Result)                                  // ends their events; called by one goroutine
	Tracker *availability.Tracker
	// What a worker holds at most, in events and bytes: undecodable events have a share of it.
	Capacity int
	Budget   int64
}

// pendingLetter is a dead event that is not settled, because its letter is not stored or what comes after
// that is not done.
type pendingLetter struct {
	result.Result
	after   func(context.Context) error // between the letter and the settling; nil: nothing
	counted bool                        // in the share of the undecodable

	stored  bool
	failure error // of the last attempt to store it
	tries   int
	next    time.Time // when to try it again
}

// share bounds what undecodable events take, so that a flood of them leaves room for all others.
type share struct {
	count, mostCount int
	bytes, mostBytes int64
}

// hasRoom reports whether there is room for so many bytes. One letter is always taken, however large.
func (s *share) hasRoom(bytes int64) bool {
	return s.count == 0 || s.count < s.mostCount && s.bytes+bytes <= s.mostBytes
}

func (s *share) add(count int, bytes int64) {
	s.count += count
	s.bytes += bytes
}

const (
	// undecodableShare: undecodable events have one part in so many of what may be in flight, in number and in
	// bytes.
	undecodableShare = 16
	firstRetry       = 500 * time.Millisecond
	longestRetry     = 5 * time.Second
	// triedAtOnce is how many letters are tried in one attempt. Each may need an answer of Redis after it, and
	// only then is there room for others.
	triedAtOnce = 32
)

// laterFor is for how long an event without room goes back to the server, give or take a third.
var laterFor = 15 * time.Second

// NewBox makes a Box; Start has it work.
func NewBox(settings BoxSettings) *Box {
	return &Box{
		put: settings.Put, settle: settings.Settle, later: (*feed.Delivery).Later, tracker: settings.Tracker,
		quotas: newQuotas(),
		undecodable: share{
			mostCount: max(1, settings.Capacity/undecodableShare),
			mostBytes: settings.Budget / undecodableShare,
		},
		arrived: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// Offer takes over an event that cannot be decoded. false: it is to be settled without a letter, because its
// category has written its share for now, or there is no room to wait for the dead-letter stream, neither
// here nor with the server.
func (b *Box) Offer(r result.Result) bool {
	// What comes back was counted before.
	if !r.Delivery.Redelivered && !b.quotas.take(letterCategory(&r), time.Now()) {
		return false
	}
	if b.addUndecodable(r) {
		return true
	}
	// Spread, so that not all come back at once.
	return b.later(r.Delivery, laterFor*2/3+mathrand.N(laterFor*2/3))
}

// addUndecodable adds the letter of an event that cannot be decoded, if there is room for it.
func (b *Box) addUndecodable(r result.Result) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.undecodable.hasRoom(r.Delivery.Cost) {
		return false
	}
	b.undecodable.add(1, r.Delivery.Cost)
	b.add(&pendingLetter{Result: r, counted: true})
	return true
}

// Keep takes over a dead event whose letter is always written, because the limits bound such events. When it
// is stored, after is called until it succeeds, and then the event is settled; after may be nil. It never
// goes back to the server: it would be posted again.
func (b *Box) Keep(r result.Result, after func(context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(&pendingLetter{Result: r, after: after})
}

// add adds a letter; mu is held.
func (b *Box) add(letter *pendingLetter) {
	letter.Ended = time.Now()
	letter.next = letter.Ended
	b.pending = append(b.pending, letter)
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// Size is how many events wait for their letters.
func (b *Box) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// Start begins to store letters. finish ends it: what is left is tried once more, for as long as ctx allows.
func (b *Box) Start(ctx context.Context) (finish func()) {
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	return func() {
		close(b.closed)
		running.Wait()
	}
}

func (b *Box) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.closed:
			b.postponed = time.Time{}
			b.attempt(ctx, b.due(time.Now().Add(2*longestRetry), math.MaxInt)) // all of them
			return
		case <-b.arrived:
		case <-timer.C:
		}
		b.attempt(ctx, b.due(time.Now(), triedAtOnce))
		timer.Reset(b.untilNext())
	}
}

// due are the letters to be tried at now, and so many at most: those that were tried least come first, so
// that letters which fail for a reason of their own keep none of the others waiting; of these the oldest.
func (b *Box) due(now time.Time, most int) []*pendingLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []*pendingLetter
	for _, letter := range b.pending {
		if !letter.next.After(now) {
			due = append(due, letter)
		}
	}
	if len(due) > most {
		slices.SortStableFunc(due, func(x, y *pendingLetter) int { return cmp.Compare(x.tries, y.tries) })
		due = due[:most]
	}
	return due
}

// untilNext is when the next letter is due.
func (b *Box) untilNext() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := time.Now().Add(longestRetry)
	for _, letter := range b.pending {
		if letter.next.Before(next) {
			next = letter.next
		}
	}
	return time.Until(next)
}

// attempt tries letters, and settles the events of those that are stored.
func (b *Box) attempt(ctx context.Context, due []*pendingLetter) {
	b.store(ctx, slices.DeleteFunc(slices.Clone(due), func(l *pendingLetter) bool { return l.stored }))
	done := b.complete(ctx, due)
	if len(done) == 0 {
		return
	}
	settled := make([]*result.Result, len(done))
	for i, letter := range done {
		settled[i] = &letter.Result
	}
	b.settle(settled)
	b.remove(done)
}

// store tries letters that are not stored.
func (b *Box) store(ctx context.Context, letters []*pendingLetter) {
	if len(letters) == 0 {
		return
	}
	dead := make([]result.Result, len(letters))
	for i, letter := range letters {
		dead[i] = letter.Result
	}
	errs := b.put(ctx, dead)
	b.mu.Lock()
	for i, letter := range letters {
		letter.LetterSeq, letter.failure = dead[i].LetterSeq, errs[i]
		if letter.failure != nil {
			letter.again()
		} else {
			letter.stored, letter.tries = true, 0
		}
	}
	b.mu.Unlock()
	b.report(ctx)
}

// report reports whether the stream refuses letters; nothing stops for it. A missing connection is reported
// by the feed.
func (b *Box) report(ctx context.Context) {
	failure := b.failure() // mu is free again: the log line has the size
	switch {
	case failure == nil:
		b.tracker.Repaired(availability.DeadLetters)
	case ctx.Err() == nil && !errors.Is(failure, errUnconnected):
		b.tracker.Impaired(availability.DeadLetters, failure)
	}
}

// failure is why the oldest letter that was refused was; nil: there is none.
func (b *Box) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, letter := range b.pending {
		if letter.failure != nil {
			return letter.failure
		}
	}
	return nil
}

// complete does what comes between a letter and the settling, and returns what can be settled. When that
// fails for one letter, it is mostly Redis that does not answer: the others wait, also those that come in
// meanwhile. They are tried before that letter is, so that it cannot keep them waiting for ever if it fails
// for a reason of its own.
func (b *Box) complete(ctx context.Context, due []*pendingLetter) (done []*pendingLetter) {
	for _, letter := range due {
		switch {
		case !letter.stored:
		case letter.after == nil:
			done = append(done, letter)
		case time.Now().Before(b.postponed):
			b.mu.Lock()
			letter.next = b.postponed
			b.mu.Unlock()
		case letter.after(ctx) != nil:
			b.mu.Lock()
			b.postponed = letter.again()
			b.mu.Unlock()
		default:
			done = append(done, letter)
		}
	}
	return done
}

// again sets when the letter is tried next, and returns when others may be; mu of the box is held.
func (l *pendingLetter) again() time.Time {
	wait, now := min(firstRetry<<min(l.tries, 10), longestRetry), time.Now()
	l.tries++
	l.next = now.Add(wait/2 + mathrand.N(wait/2))
	return now.Add(wait / 2)
}

// remove removes what is settled.
func (b *Box) remove(done []*pendingLetter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, letter := range done {
		if letter.counted {
			b.undecodable.add(-1, -letter.Delivery.Cost)
		}
	}
	b.pending = slices.DeleteFunc(b.pending, func(l *pendingLetter) bool { return slices.Contains(done, l) })
}
