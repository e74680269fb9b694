package post

import (
	"cmp"
	"fmt"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// What waits for slow channels is bounded: beyond that, events of the channel with most of them go back to
// the server for later, so that there is room for those of other channels, and for deciding. Their admission
// stays in Redis, so that they are not charged again.

// shortestLater is for how long an event goes back at least.
var shortestLater = 5 * time.Second

// laneBackoff is how long a channel, or the workspace, is left alone after a failure.
var laneBackoff = lanes.Backoff{
	First: 500 * time.Millisecond, Longest: time.Minute, LongestUnexplained: 5 * time.Second,
}

// laneBound is how much of what a worker may hold can wait in lanes, while some are slow: three quarters. The
// rest is room for what is to be decided, and for channels that are not slow.
func laneBound(capacity int, bytes int64) lanes.Size {
	return lanes.Size{Items: max(1, capacity*3/4), Bytes: bytes * 3 / 4}
}

// HandBackExcess hands what exceeds the share of slow lanes back to the server. When the server takes no
// more, the worker fills up, and then fetching stops: nothing has room. A worker that stops needs no room;
// what it cannot post goes back without a delay.
func (s *Sender) HandBackExcess() {
	for !s.stopping.Load() {
		channel, item, found := s.lanes.TakeExcess()
		if !found {
			s.Tracker.Recovered(availability.Backlog)
			return
		}
		waiting, closed := s.lanes.Waiting(channel)
		delay := laterBy(s.Pace, waiting, closed, s.LongestLater)
		if !s.later(item.Value.Delivery, delay) {
			s.lanes.PutBack(channel, item)
			if s.Feed.Full() {
				why := cmp.Or(s.Feed.WhyNotLater(), "it does not answer at the moment")
				s.Tracker.Lost(availability.Backlog, fmt.Errorf(
					"%s: %s not posted yet, and the stream takes none back: %s",
					channel, term.CountAre(waiting+1, "event"), why))
			}
			return
		}
		s.failing.forget(item.Value)
		s.lanes.Parked(channel, item, delay)
	}
}

// laterBy is how long it takes, at the channel's pace, until an event that comes after all that waits there
// is due: at least shortestLater, and at most longest if that is more.
func laterBy(pace ratelimit.Tier, waiting int, closed, longest time.Duration) time.Duration {
	due := closed
	if pace.Count > 0 {
		due += pace.Window * time.Duration(waiting) / time.Duration(pace.Count)
	}
	return min(max(due, shortestLater), max(longest, shortestLater))
}

// idleKnown is for how long after the last failed post it is known of a channel that it takes none.
const idleKnown = time.Minute

// ForgetIdle ends what was reported of channels for which nothing waits any more: no post will find out that
// they take messages again. While something is wrong with all of Slack nothing is read, so that ends at once.
func (s *Sender) ForgetIdle() {
	idle := true
	for _, state := range s.lanes.States() {
		if state.Waiting() > 0 {
			idle = false
		} else if state.Closed == 0 {
			s.Tracker.ChannelIdle(state.Channel, idleKnown)
		}
	}
	if idle && !s.lanes.Closed() {
		s.Tracker.Recovered(availability.Slack)
	}
}
