package lanes

import (
	"slices"
	"strings"
	"time"
)

// parkedItems is a number of items that were given back to their source for later.
type parkedItems struct {
	until, since time.Time
	items        int
}

// State is what one lane holds.
type State struct {
	Channel string
	Held    int           // items in the lane, those that are being posted included
	Posting int           // of these, how many are being posted
	Parked  int           // items that were given back to their source for later
	Oldest  time.Time     // since when the oldest of these waits; zero: there is none
	Closed  time.Duration // how long the channel's gate stays closed
	Paced   bool          // its pace has no room at the moment
}

// Waiting is how many items are not posted yet.
func (s State) Waiting() int { return s.Held + s.Parked }

// Parked notes that an item of the channel was given back to its source for d. It counts as waiting
// meanwhile.
func (l *Lanes[T]) Parked(channel string, item Item[T], d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, until := l.lane(channel), time.Now().Add(d)
	if last := len(ln.parked) - 1; last >= 0 && ln.parked[last].until.Sub(until).Abs() < time.Second {
		ln.parked[last].items++
		if item.Since.Before(ln.parked[last].since) {
			ln.parked[last].since = item.Since
		}
		return
	}
	ln.parked = append(ln.parked, parkedItems{until: until, since: item.Since, items: 1})
}

// Waiting is how many items of the channel are not posted yet, and for how long its gate stays closed.
func (l *Lanes[T]) Waiting(channel string) (items int, closed time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, now := l.lane(channel), time.Now()
	for _, p := range ln.parked {
		if !p.until.Before(now) {
			items += p.items
		}
	}
	return ln.held.Items + items, ln.closedFor(now)
}

// States is what every lane holds, by channel in alphabetical order.
func (l *Lanes[T]) States() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := make([]State, 0, len(l.order))
	for _, ln := range l.order {
		states = append(states, ln.state(time.Now()))
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Channel, b.Channel) })
	return states
}

func (ln *lane[T]) state(now time.Time) State {
	s := State{
		Channel: ln.channel, Held: ln.held.Items, Posting: ln.running,
		Closed: ln.closedFor(now), Paced: now.Before(ln.notBefore),
	}
	for e := range ln.entries {
		s.wait(e.Since)
	}
	ln.parked = slices.DeleteFunc(ln.parked, func(p parkedItems) bool { return p.until.Before(now) })
	for _, p := range ln.parked {
		s.Parked += p.items
		s.wait(p.since)
	}
	return s
}

// wait takes an item that waits since then into account.
func (s *State) wait(since time.Time) {
	if s.Oldest.IsZero() || since.Before(s.Oldest) {
		s.Oldest = since
	}
}

// closedFor is how long the gate stays closed; 0: a post may go, or a probe is under way.
func (ln *lane[T]) closedFor(now time.Time) time.Duration {
	if !ln.gate.closed(now) {
		return 0
	}
	return max(0, ln.gate.until.Sub(now))
}
