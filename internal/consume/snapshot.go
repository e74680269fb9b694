package consume

import (
	"maps"
	"slices"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post"
	"notifier/internal/snapshot"
)

// Snapshot returns the parts of the snapshot that the Worker knows: Waits, Channels, Failing, InFlight, Held
// and HeldFor. It makes no request to any server.
func (w *Worker) Snapshot() snapshot.Snapshot {
	s := snapshot.Snapshot{
		Waits: w.tracker.Waits(), Channels: w.sender.Channels(), Failing: w.sender.Failing(),
		InFlight: w.feed.Held(),
	}
	s.Held, s.HeldFor = held(s, w.letters.Size())
	return s
}

// HeldCauses lists the keys of Snapshot.HeldFor: each dependency that events wait for, and "pace".
func HeldCauses() []string { return append(availability.Words(), post.WaitPace) }

// held counts the held events of a snapshot, each once and by cause. An outage of Slack in one channel holds
// the queue of that channel, as does its pace. Only dead events wait for the dead-letter stream, and none waits
// for the clock of Redis. Every other outage holds everything in flight.
func held(s snapshot.Snapshot, dead int) (total int, byCause map[string]int) {
	byCause = map[string]int{}
	for _, c := range s.Channels {
		lost := slices.ContainsFunc(s.Waits, func(wait snapshot.Wait) bool { return wait.Channel == c.Name })
		switch {
		case c.Why == post.WaitPace:
			byCause[post.WaitPace] += c.Queued
		case lost:
			byCause[availability.Slack.String()] += c.Queued
		}
		if c.Why != "" {
			total += c.Queued
		}
	}
	everything := false
	for _, wait := range s.Waits {
		switch {
		case wait.Channel != "" || !slices.Contains(availability.Words(), wait.For):
			continue
		case wait.For == availability.DeadLetters.String():
			byCause[wait.For] = dead
			total += dead
		default:
			byCause[wait.For] = s.InFlight
			everything = true
		}
	}
	if everything {
		total = s.InFlight
	}
	maps.DeleteFunc(byCause, func(_ string, events int) bool { return events == 0 })
	return total, byCause
}
