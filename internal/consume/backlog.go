package consume

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"notifier/internal/lanes"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// What waits for slow channels is bounded: beyond that, events of the channel with most of them go back to the server for a
// while, so that there is room for those of other channels, and for deciding. Their admission stays in Redis, so that they are
// not charged again.

// shortestPark is for how long an event is given back at least.
var shortestPark = 5 * time.Second

// laneBackoff is how long a channel, or the workspace, is left alone after a failure.
var laneBackoff = lanes.Backoff{First: 500 * time.Millisecond, Longest: time.Minute, LongestUnexplained: 5 * time.Second}

// laneBound is how much of what a worker may hold can wait in lanes, while some are slow: three quarters. The rest is room for
// what is to be decided, and for channels that are not slow.
func laneBound(capacity int, bytes int64) lanes.Size {
	return lanes.Size{Items: max(1, capacity*3/4), Bytes: bytes * 3 / 4}
}

// parkExcess gives what exceeds the share of slow lanes back to the server. When the server takes no more, the worker fills up,
// and then pulling stops: nothing has room. A worker that stops needs no room; what it cannot post goes back without a delay.
func (w *Worker) parkExcess() {
	for !w.stopping.Load() {
		channel, item, found := w.lanes.TakeExcess()
		if !found {
			w.availability.recovered(laneRoom)
			return
		}
		waiting, closed := w.lanes.Waiting(channel)
		delay := parkFor(w.settings.Pace, waiting, closed, w.settings.LongestPark)
		if !w.source.park(item.Value.delivery, delay) {
			w.lanes.PutBack(channel, item)
			if w.inflight.full() {
				w.availability.lost(laneRoom, fmt.Errorf("%s: %s not posted yet, and the stream takes none back: %s", channel, term.CountAre(waiting+1, "event"), w.parkingRefused()))
			}
			return
		}
		w.lanes.Parked(channel, item, delay)
	}
}

// parkingRefused is why the source takes nothing back.
func (w *Worker) parkingRefused() string {
	return cmp.Or(w.source.parkingExhausted(), "it does not answer at the moment")
}

// parkFor is how long it takes, at the channel's pace, until an event that comes after all that waits there is due: at least
// shortestPark, and at most longest if that is more.
func parkFor(pace ratelimit.Tier, waiting int, closed, longest time.Duration) time.Duration {
	due := closed
	if pace.Count > 0 {
		due += pace.Window * time.Duration(waiting) / time.Duration(pace.Count)
	}
	return min(max(due, shortestPark), max(longest, shortestPark))
}

// forgetIdleChannels ends what was reported of channels for which nothing waits any more: no post will find out that they
// take messages again.
func (w *Worker) forgetIdleChannels() {
	idle := true
	for _, state := range w.lanes.States() {
		if state.Waiting() > 0 {
			idle = false
		} else if state.Closed == 0 {
			w.availability.channelRecovered(state.Channel)
		}
	}
	if idle && !w.lanes.Closed() {
		w.availability.recovered(slackPosts)
	}
}

// Unposted is what waits for one Slack channel: admitted, and not posted yet.
type Unposted struct {
	Channel string    // as the settings name it; "webhook": that of the webhook
	Events  int       // those that were given back to the server for a while included
	Parked  int       // how many of these were given back
	Oldest  time.Time // when the oldest was published; zero: there is none
	Why     string    // what they wait for: "slack" or "pace"; empty: nothing keeps them

	Posting int           // how many of the events are being posted
	Closed  time.Duration // for how long this replica posts nothing to it; 0: it may
}

// Unposted lists what waits in each lane, by channel in alphabetical order.
func (w *Worker) Unposted() []Unposted {
	states, waits := w.lanes.States(), w.availability.waits(slackPosts, slackCredentials)
	list := make([]Unposted, 0, len(states))
	for _, state := range states {
		list = append(list, Unposted{
			Channel: state.Channel, Events: state.Waiting(), Parked: state.Parked, Oldest: state.Oldest, Why: whyUnposted(state, waits),
			Posting: state.Posting, Closed: state.Closed,
		})
	}
	return list
}

// WaitPace is the Unposted.Why of a channel whose pace has no room at the moment, or had none for some of its events.
const WaitPace = "pace"

// whyUnposted is Unposted.Why. It takes the waits for Slack into account: a gate whose time is over is open for a probe, and
// what comes after the probe still waits.
func whyUnposted(state lanes.State, waits []Wait) string {
	waited := slices.ContainsFunc(waits, func(wait Wait) bool { return wait.Channel == "" || wait.Channel == state.Channel })
	switch {
	case state.Waiting() == 0:
		return ""
	case state.Closed > 0 || waited:
		return slackPosts.String()
	case state.Paced || state.Parked > 0: // what was given back waits for a turn that was estimated by the pace
		return WaitPace
	}
	return ""
}

// Held is how many events wait for each of WaitWords, and for WaitPace; 0 where none does. Those that were given back to the
// server for a while are held too.
func (w *Worker) Held() map[string]int {
	return heldEvents(w.Holds(), w.letterbox.size(), w.Waits(), w.Unposted())
}

// heldEvents counts everything for a wait that concerns all channels, and else what waits for the channels that are concerned.
// Dead events alone wait for the dead-letter stream.
func heldEvents(inFlight, dead int, waits []Wait, unposted []Unposted) map[string]int {
	held := map[string]int{WaitPace: 0}
	for _, word := range WaitWords() {
		held[word] = 0
	}
	everything := inFlight
	for _, u := range unposted {
		everything += u.Parked
		if u.Why == WaitPace {
			held[WaitPace] += u.Events
		} else if slices.ContainsFunc(waits, func(wait Wait) bool { return wait.Channel == u.Channel }) {
			held[slackPosts.String()] += u.Events
		}
	}
	for _, wait := range waits {
		if _, counts := held[wait.For]; counts && wait.Channel == "" {
			held[wait.For] = everything
			if wait.For == deadLetterStream.String() {
				held[wait.For] = dead
			}
		}
	}
	return held
}
