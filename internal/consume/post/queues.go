package post

import (
	"slices"
	"strings"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/snapshot"
)

// WaitPace is the Why of a queue while the pace of its channel has no room.
const WaitPace = "pace"

// Channels describes the queue of every channel, in alphabetical order.
func (s *Sender) Channels() []snapshot.Channel {
	states := s.lanes.States()
	waits := s.settings.Tracker.Waits(availability.Slack, availability.Credentials)
	list := make([]snapshot.Channel, 0, len(states))
	for _, state := range states {
		list = append(list, snapshot.Channel{
			Name: state.Channel, Queued: state.Held, Oldest: state.Oldest.UTC(), Why: delayedBy(state, waits),
			Posting: state.Posting,
		})
	}
	s.channels.describe(list)
	return list
}

// delayedBy returns the cause that delays a queue, or "". It also looks at the outages: when the time of a
// closed gate is over, a probe may go through, and all other events still wait.
func delayedBy(state lanes.State, waits []snapshot.Wait) string {
	waited := slices.ContainsFunc(waits, func(wait snapshot.Wait) bool {
		return wait.Channel == "" || wait.Channel == state.Channel
	})
	switch {
	case state.Held == 0:
		return ""
	case state.Closed > 0 || waited:
		return availability.Slack.String()
	case state.Paced:
		return WaitPace
	}
	return ""
}

// maxIdle bounds how long a channel's last failure is reported while no event waits for the channel.
const maxIdle = time.Minute

// ForgetIdle ends the reports about channels without events: no post will find out that they take messages
// again. While the whole workspace fails nothing is fetched, so that report ends at once. So does the report
// that replies are not Slack's, which names a next try that no event would make.
func (s *Sender) ForgetIdle() {
	idle := true
	for _, state := range s.lanes.States() {
		if state.Held > 0 {
			idle = false
		} else if state.Closed == 0 {
			s.settings.Tracker.ChannelIdle(state.Channel, maxIdle)
		}
	}
	if !idle || s.lanes.Paused() {
		return
	}
	s.settings.Tracker.Recovered(availability.Slack)
	s.foreign.forget()
	notSlack := func(wait snapshot.Wait) bool { return strings.HasPrefix(wait.Reason, snapshot.NotSlack) }
	if slices.ContainsFunc(s.settings.Tracker.Waits(availability.Credentials), notSlack) {
		s.settings.Tracker.Recovered(availability.Credentials)
	}
}
