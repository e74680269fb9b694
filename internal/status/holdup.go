package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Holdup is what keeps the events of a category from being posted, and where they go. An event whose payload
// names a channel can go to another one.
type Holdup struct {
	Channel string // of the category; empty: the webhook's, or not known
	Waits   []stats.Wait

	// Of one event on which Slack keeps failing, where a replica has reported that.
	Error string    // Slack's code at its last post
	Next  time.Time // of its next post, at the earliest; zero: not known
}

// Words of what events wait for, besides those of a replica's own waits.
const (
	waitPace   = "pace"
	waitSlack  = "slack"
	waitWorker = "worker"

	waitDeadLetter = "dead_letter"
)

// holdsNoEvent are waits that keep no event in flight from being posted.
var holdsNoEvent = []string{"backlog", "redis_clock"}

// Holdup asks Redis what the replicas wait for that concerns an event of a category; empty: any. It only
// reads. Errors are as for Read.
func (s Source) Holdup(ctx context.Context, category, id string) (Holdup, error) {
	of, err := s.look(ctx)
	if err != nil {
		return Holdup{}, err
	}
	var h Holdup
	lane := ""
	if category != "" && !of.settings.RoutesUnknown {
		h.Channel, _ = of.settings.ChannelOf(category)
		lane = of.settings.laneOf(category)
	}
	if silence := silenceOf(of.replicas, of.hour.Now); silence != "" {
		h.add(stats.Wait{For: waitWorker, Reason: silence})
	}
	for _, pause := range of.pausesFor(lane) {
		asked := ratelimit.Pause{Left: pause.Left}.String()
		h.add(stats.Wait{For: waitSlack, Channel: pause.Channel, Reason: asked})
	}
	for _, replica := range of.replicas {
		for _, f := range replica.Failing {
			if f.Category == category && f.EventID == id {
				h.Error, h.Next = f.Error, f.Next
			}
		}
		for _, wait := range replica.Waits {
			otherChannel := wait.Channel != "" && wait.Channel != lane
			noLetters := wait.For == waitDeadLetter && replica.Dead == 0
			if !otherChannel && !noLetters && !slices.Contains(holdsNoEvent, wait.For) {
				h.add(wait)
			}
		}
	}
	if len(h.Waits) == 0 {
		err = h.addPace(ctx, of, lane)
	}
	h.addSilent(of)
	return h, err
}

// addSilent adds the replica that has not reported for longest: it may have had the event when it died.
func (h *Holdup) addSilent(of running) {
	if len(stats.Running(of.replicas)) == 0 {
		return // which is said already
	}
	silent := slices.DeleteFunc(slices.Clone(of.replicas), func(r stats.Replica) bool { return !r.Silent })
	if len(silent) == 0 {
		return
	}
	first := slices.MinFunc(silent, func(a, b stats.Replica) int { return a.Seen.Compare(b.Seen) })
	h.add(
		stats.Wait{
			For: waitWorker,
			Reason: fmt.Sprintf("%s has not reported for %s: if it held this event, another worker gets it",
				first.ID, term.Duration(of.hour.Now.Sub(first.Seen))),
		},
	)
}

// add adds a wait, unless there is one for the same: what Slack's pauses say is newer than what a replica
// says of them.
func (h *Holdup) add(wait stats.Wait) {
	same := func(w stats.Wait) bool { return w.For == wait.For && w.Channel == wait.Channel }
	if !slices.ContainsFunc(h.Waits, same) {
		h.Waits = append(h.Waits, wait)
	}
}

// addPace adds when it is the turn of the last of the events that wait for the pace of a channel.
func (h *Holdup) addPace(ctx context.Context, of running, lane string) error {
	pace, unposted := of.settings.Limits.Pace, UnpostedOf(of.replicas, of.hour.Now)
	at := slices.IndexFunc(unposted, func(u Unposted) bool { return u.Channel == lane })
	if at < 0 || pace.Count == 0 {
		return nil
	}
	next, err := of.limiter.Turn(ctx, lane, pace)
	if err != nil {
		return err
	}
	events := unposted[at].Events
	last := next + pace.Window*time.Duration((events-1)/pace.Count)
	if last < time.Second {
		return nil
	}
	reason := fmt.Sprintf(
		"its turn in about %s at most, %s in the pace %s",
		term.Duration(last),
		waiting(events),
		pace,
	)
	h.add(stats.Wait{For: waitPace, Channel: lane, Reason: reason})
	return nil
}

func waiting(events int) string {
	if events == 1 {
		return "1 event waits"
	}
	return fmt.Sprintf("%d events wait", events)
}
