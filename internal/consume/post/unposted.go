package post

import (
	"slices"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post/lanes"
)

// Unposted is what waits for one Slack channel: admitted, and not posted yet.
type Unposted struct {
	Channel string    // as the settings name it; "webhook": that of the webhook
	Events  int       // those that were given back to the server for later included
	Parked  int       // how many of these were given back
	Oldest  time.Time // when the oldest was published; zero: there is none
	Why     string    // what they wait for: "slack" or "pace"; empty: nothing keeps them

	Posting int           // how many of the events are being posted
	Closed  time.Duration // for how long this replica posts nothing to it; 0: it may
}

// Unposted lists what waits in each lane, by channel in alphabetical order.
func (s *Sender) Unposted() []Unposted {
	states, waits := s.lanes.States(), s.Tracker.Waits(availability.Slack, availability.Credentials)
	list := make([]Unposted, 0, len(states))
	for _, state := range states {
		list = append(list, Unposted{
			Channel: state.Channel, Events: state.Waiting(), Parked: state.Parked, Oldest: state.Oldest,
			Why: whyUnposted(state, waits), Posting: state.Posting, Closed: state.Closed,
		})
	}
	return list
}

// WaitPace is the Unposted.Why of a channel whose pace has no room at the moment, or had none for some of its
// events.
const WaitPace = "pace"

// whyUnposted is Unposted.Why. It takes the waits for Slack into account: a gate whose time is over is open
// for a probe, and what comes after the probe still waits.
func whyUnposted(state lanes.State, waits []availability.Wait) string {
	waited := slices.ContainsFunc(waits, func(wait availability.Wait) bool {
		return wait.Channel == "" || wait.Channel == state.Channel
	})
	switch {
	case state.Waiting() == 0:
		return ""
	case state.Closed > 0 || waited:
		return availability.Slack.String()
	case state.Paced || state.Parked > 0: // what was given back waits for a turn that was estimated by the pace
		return WaitPace
	}
	return ""
}

// Held counts what is held, by the words of what it waits for and WaitPace; 0 where nothing does. inFlight is
// everything that the worker holds, dead what waits for its letter. It counts everything for a wait that
// concerns all channels, and else what waits for the channels that are concerned. Dead events alone wait for
// the dead-letter stream.
func Held(inFlight, dead int, waits []availability.Wait, unposted []Unposted) map[string]int {
	held := map[string]int{WaitPace: 0}
	for _, word := range availability.Words() {
		held[word] = 0
	}
	everything := inFlight
	for _, u := range unposted {
		everything += u.Parked
		concerned := func(wait availability.Wait) bool { return wait.Channel == u.Channel }
		if u.Why == WaitPace {
			held[WaitPace] += u.Events
		} else if slices.ContainsFunc(waits, concerned) {
			held[availability.Slack.String()] += u.Events
		}
	}
	for _, wait := range waits {
		if _, counts := held[wait.For]; counts && wait.Channel == "" {
			held[wait.For] = everything
			if wait.For == availability.DeadLetters.String() {
				held[wait.For] = dead
			}
		}
	}
	return held
}
