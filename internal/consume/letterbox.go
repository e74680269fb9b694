package consume

import (
	"context"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"
)

// letterbox keeps dead events until their letters are stored, apart from all other events: a dead-letter stream
// that refuses or does not answer must not stop what can be sent. It tries each letter until the stream has it, and only
// then settles the event, so that an event leaves one stream after it is safe in the other.
//
// What it holds is in flight, so undecodable events are bounded: what exceeds their share goes back to the server for a while,
// or is settled without a letter. Those that Slack did not take are bounded by what the limits admit in a window, and at last
// by what may be in flight.
type letterbox struct {
	store        func(ctx context.Context, dead []Settled) []error // stores their letters, and notes their sequences; one error for each
	settle       func([]Settled)
	park         func(d *delivery, delay time.Duration) bool // jetStreamSource.park
	availability *availability

	// What follows is used by offer alone, which the loop calls.
	quota    letterQuota
	returned map[string]time.Time // tokens of undecodable events that were returned, and until when they are expected back

	mu          sync.Mutex
	moved       chan struct{} // closed, and replaced, when an attempt has ended
	arrived     chan struct{}
	letters     []*pendingLetter // in the order in which they came
	undecodable letterShare
	others      letterShare
	returnFor   time.Duration // how long an event is returned for, give or take a third
	refusing    bool          // the last attempt stored nothing
	ending      bool          // the worker has no more time
	closed      chan struct{}

	postponed time.Time // used by run alone: Redis is not asked before
}

// pendingLetter is a dead event that is not settled, because its letter is not stored or what comes after that is not done.
type pendingLetter struct {
	Settled
	after func(context.Context) error // between the letter and the settling; nil: nothing
	share *letterShare
	bytes int64

	stored  bool
	failure error // of the last attempt to store it
	tries   int
	next    time.Time // when to try it again
}

// letterShare bounds a kind of letter: a flood of events that cannot be decoded takes no room from those that Slack refused.
type letterShare struct {
	count, mostCount int
	bytes, mostBytes int64
}

// full reports whether there is no room for so many bytes. One letter is always taken, however large.
func (s *letterShare) full(bytes int64) bool {
	return s.count > 0 && (s.count >= s.mostCount || s.bytes+bytes > s.mostBytes)
}

const (
	// letterShares: each kind of letter has one part in so many of what may be in flight, in number and in bytes. With the
	// three quarters of lanes (see laneBound) the two kinds leave an eighth, for what is to be decided and sent at once.
	letterShares     = 16
	firstLetterRetry = 500 * time.Millisecond
	lastLetterRetry  = 5 * time.Second
	letterReturned   = 15 * time.Second
	letterForgotten  = time.Minute // a returned event that has not come back by then has gone to another replica

	// roomPatience is how long the loop, or a poster, waits for room at most, and then the loop for events to be returned. It
	// is far below what the loop's progress may take; see Live.
	roomPatience = time.Second
	// lettersAtOnce is how many letters are tried in one attempt. Each may need an answer of Redis, and only then is there room
	// for others.
	lettersAtOnce = 32
)

func newLetterbox(capacity int, bytes int64) *letterbox {
	share := letterShare{mostCount: max(1, capacity/letterShares), mostBytes: bytes / letterShares}
	return &letterbox{
		undecodable: share, others: share, returned: map[string]time.Time{}, returnFor: letterReturned,
		moved: make(chan struct{}), arrived: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// offer takes over events that cannot be decoded, and returns those that are to be settled without a letter: their category
// has written its share for now, or the dead-letter stream refuses or is slow, and neither here nor with the server is room to
// wait for it. It takes about roomPatience at most, and as long again where the server is slow to take events back.
func (b *letterbox) offer(dead []Settled) (without []Settled) {
	until := time.Now().Add(roomPatience)
	for i := range dead {
		if !b.offerOne(&dead[i], until) {
			dead[i].NoLetter = true
			without = append(without, dead[i])
		}
	}
	return without
}

func (b *letterbox) offerOne(s *Settled, until time.Time) bool {
	return b.granted(s, time.Now()) && (b.put(s, until) || b.giveBack(s.delivery, until.Add(roomPatience)))
}

// granted reports whether the event may have a letter. One that was returned has been granted it before.
func (b *letterbox) granted(s *Settled, now time.Time) bool {
	if _, was := b.returned[s.delivery.token]; was {
		delete(b.returned, s.delivery.token)
		return true
	}
	return b.quota.take(letterCategory(s), now)
}

// put adds the letter of an undecodable event if there is room for it by then.
func (b *letterbox) put(s *Settled, until time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.awaitRoom(&b.undecodable, s.delivery.cost, until)
	if room {
		b.add(&b.undecodable, *s, nil)
	}
	return room
}

// giveBack returns an event to the server for a while, if that may be done and it is not too late. It does not hold mu: the
// server may be asked meanwhile.
func (b *letterbox) giveBack(d *delivery, until time.Time) bool {
	now := time.Now()
	b.forgetReturned(now)
	if len(b.returned) >= b.undecodable.mostCount || now.After(until) || !b.park(d, b.returnDelay()) {
		return false
	}
	b.returned[d.token] = now.Add(letterForgotten)
	return true
}

// forgetReturned forgets events that another replica has received.
func (b *letterbox) forgetReturned(now time.Time) {
	for token, until := range b.returned {
		if now.After(until) {
			delete(b.returned, token)
		}
	}
}

// keep takes over a dead event whose letter is always written. When it is stored, after is called until it succeeds, and
// then the event is settled; after may be nil. It never gives the event back to the server: it would be posted again, and
// lose its refund. So it takes more than its share when there is no room; each of these events has passed the limits and
// keeps its slots until its letter is stored. It waits for room first, roomPatience at most.
func (b *letterbox) keep(s Settled, after func(context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaitRoom(&b.others, s.delivery.cost, time.Now().Add(roomPatience))
	b.add(&b.others, s, after)
}

// awaitRoom reports whether a share has room. While the stream takes letters it waits for that, but not longer than until then,
// so that a burst is slowed down and not returned. mu is held, but not while it waits.
func (b *letterbox) awaitRoom(share *letterShare, bytes int64, until time.Time) bool {
	for share.full(bytes) {
		patience := time.Until(until)
		if b.refusing || b.ending || patience <= 0 {
			return false
		}
		moved := b.moved
		b.mu.Unlock()
		select {
		case <-moved:
		case <-time.After(patience):
		}
		b.mu.Lock()
	}
	return true
}

func (b *letterbox) add(share *letterShare, s Settled, after func(context.Context) error) {
	s.ended = time.Now()
	letter := &pendingLetter{Settled: s, after: after, share: share, bytes: s.delivery.cost, next: s.ended}
	share.count++
	share.bytes += letter.bytes
	b.letters = append(b.letters, letter)
	signal(b.arrived)
}

// returnDelay is how long an event is returned for, spread so that not all come back at once.
func (b *letterbox) returnDelay() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.returnFor*2/3 + mathrand.N(b.returnFor*2/3)
}

// size is how many events wait for their letters.
func (b *letterbox) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.letters)
}

// start begins to store letters. finish ends it: what is left is tried once more, for as long as ctx allows.
func (b *letterbox) start(ctx context.Context) (finish func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx)
	}()
	stop := context.AfterFunc(ctx, b.end)
	return func() {
		close(b.closed)
		<-done
		stop()
	}
}

// end lets those go on who wait for room.
func (b *letterbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ending = true
	b.move()
}

// move lets those look again who wait for room; mu is held.
func (b *letterbox) move() {
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *letterbox) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.closed:
			b.postponed = time.Time{}
			b.attempt(ctx, b.due(time.Now().Add(lastLetterRetry*2), math.MaxInt)) // at once: nobody waits for room any more
			return
		case <-b.arrived:
		case <-timer.C:
		}
		b.attempt(ctx, b.due(time.Now(), lettersAtOnce))
		timer.Reset(b.untilNext())
	}
}

// due are the letters to be tried at now, the oldest first, and so many at most.
func (b *letterbox) due(now time.Time, most int) []*pendingLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []*pendingLetter
	for _, letter := range b.letters {
		if !letter.next.After(now) && len(due) < most {
			due = append(due, letter)
		}
	}
	return due
}

// untilNext is when the next letter is due.
func (b *letterbox) untilNext() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := time.Now().Add(lastLetterRetry)
	for _, letter := range b.letters {
		if letter.next.Before(next) {
			next = letter.next
		}
	}
	return time.Until(next)
}

// attempt tries letters, and settles the events of those that are stored.
func (b *letterbox) attempt(ctx context.Context, due []*pendingLetter) {
	b.storeLetters(ctx, slices.DeleteFunc(slices.Clone(due), func(l *pendingLetter) bool { return l.stored }))
	done := b.complete(ctx, due)
	settled := make([]Settled, len(done))
	for i, letter := range done {
		settled[i] = letter.Settled
	}
	b.settle(settled)
	b.remove(done)
}

// storeLetters tries letters that are not stored.
func (b *letterbox) storeLetters(ctx context.Context, letters []*pendingLetter) {
	if len(letters) == 0 {
		return
	}
	dead := make([]Settled, len(letters))
	for i, letter := range letters {
		dead[i] = letter.Settled
	}
	errs := b.store(ctx, dead)
	for i, letter := range letters {
		letter.LetterSeq = dead[i].LetterSeq
	}
	b.note(letters, errs)
	b.report(ctx)
}

// note notes how an attempt to store letters has ended.
func (b *letterbox) note(letters []*pendingLetter, errs []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusing = true
	for i, letter := range letters {
		if letter.failure = errs[i]; letter.failure != nil {
			letter.again()
		} else {
			letter.stored, letter.tries, b.refusing = true, 0, false
		}
	}
}

// report reports whether the stream refuses letters; nothing stops for it. A missing connection is reported by the source.
func (b *letterbox) report(ctx context.Context) {
	failure := b.failure() // mu is free again: the log line has the size
	switch {
	case failure == nil:
		b.availability.repaired(deadLetterStream)
	case ctx.Err() == nil && !errors.Is(failure, errUnconnected):
		b.availability.impaired(deadLetterStream, failure)
	}
}

// failure is why the oldest letter that was refused was; nil: there is none.
func (b *letterbox) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, letter := range b.letters {
		if letter.failure != nil {
			return letter.failure
		}
	}
	return nil
}

// complete does what comes between a letter and the settling, and returns what can be settled. When that fails for one
// letter, it is mostly Redis that does not answer: the others wait, also those that come in meanwhile. They are tried before
// that letter is, so that it cannot keep them waiting for ever if it fails for a reason of its own.
func (b *letterbox) complete(ctx context.Context, due []*pendingLetter) (done []*pendingLetter) {
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

// again sets when the letter is tried next, and returns when others may be; mu of the letterbox is held.
func (l *pendingLetter) again() time.Time {
	wait, now := min(firstLetterRetry<<min(l.tries, 10), lastLetterRetry), time.Now()
	l.tries++
	l.next = now.Add(wait/2 + mathrand.N(wait/2))
	return now.Add(wait / 2)
}

// remove removes what is settled, and lets those go on who wait for room or for the end of the attempt.
func (b *letterbox) remove(done []*pendingLetter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, letter := range done {
		letter.share.count--
		letter.share.bytes -= letter.bytes
		letter.share = nil
	}
	b.letters = slices.DeleteFunc(b.letters, func(l *pendingLetter) bool { return l.share == nil })
	b.move()
}
