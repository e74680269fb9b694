package consume

import (
	"context"
	"fmt"
	"strings"
	"time"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/post"
	"notifier/internal/term"
)

// What others ask of a running worker: is it alive, is it ready, what is it waiting for, what has it lost.

func (w *Worker) stamp() { w.progress.Store(time.Now().UnixNano()) }

// stalledAfter is how long the loop may show no sign of life. It shows one at least every few seconds,
// whatever it is waiting for.
const stalledAfter = 30 * time.Second

// Live is nil while the loop makes progress. It depends on no neighbour: waiting for one is progress.
func (w *Worker) Live() error {
	if silence := time.Since(time.Unix(0, w.progress.Load())); silence > stalledAfter {
		return fmt.Errorf("the loop has made no progress for %s", silence.Round(time.Second))
	}
	return nil
}

// Ready lists why this worker cannot do its job at the moment; empty: it can. A Slack that takes no posts is
// a wait and no reason, unless it refuses the credentials, nor is a dead-letter stream that refuses letters,
// unless the dead events fill the worker, so that it reads no more. It asks Redis, and answers within a
// second.
func (w *Worker) Ready(ctx context.Context) []string {
	var reasons []string
	for _, wait := range w.tracker.Waits(
		availability.NATS, availability.Consumer, availability.Redis,
		availability.Credentials, availability.Backlog,
	) {
		reasons = append(reasons, reasonLine(wait.For, wait.Reason))
	}
	for _, wait := range w.tracker.Waits(availability.DeadLetters) {
		if w.feed.Full() {
			reason := fmt.Sprintf("%s; no room is left beside %s",
				wait.Reason, term.Count(w.letters.Size(), "dead event"))
			reasons = append(reasons, reasonLine(wait.For, reason))
		}
	}
	if !w.running.Load() || (!w.feed.IsBound() && len(reasons) == 0) {
		reasons = append(reasons, "worker: starting or stopping")
	}
	if !w.tracker.Unavailable(availability.NATS) {
		if err := within(ctx, w.settings.JetStream.connection().Unreachable); err != nil {
			reasons = append(reasons, reasonLine(availability.NATS.String(), err.Error()))
		}
	}
	if !w.tracker.Unavailable(availability.Redis) {
		if err := within(ctx, w.settings.Limiter.Ready); err != nil {
			reasons = append(reasons, reasonLine(availability.Redis.String(), err.Error()))
		}
	}
	return reasons
}

// within gives a question half a second, so that one without an answer leaves time for the other.
func within(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	return ask(ctx)
}

// reasonLine names what is unavailable once, also where the error does.
func reasonLine(what, reason string) string {
	return what + ": " + strings.TrimPrefix(reason, what+": ")
}

// Holds is how many events are in flight: everything that has arrived and is not settled.
func (w *Worker) Holds() int { return w.feed.Held() }

// Held is how many events wait for each of availability.Words, and for post.WaitPace; 0 where none does.
// Those that were handed back to the server for later are held too.
func (w *Worker) Held() map[string]int {
	return post.Held(w.Holds(), w.letters.Size(), w.Waits(), w.Unposted())
}

// Unposted lists what waits in each channel's lane, by channel in alphabetical order.
func (w *Worker) Unposted() []post.Unposted { return w.sender.Unposted() }

// DeadEvents is how many dead events wait until their letters are stored.
func (w *Worker) DeadEvents() int { return w.letters.Size() }

// heldFor is how many events a line about a dependency shows: dead events for the dead-letter stream, else
// everything in flight.
func (w *Worker) heldFor(d availability.Dependency) int {
	if d == availability.DeadLetters {
		return w.letters.Size()
	}
	return w.feed.Held()
}

// Failing lists a few of the events that Slack has not taken, and that are tried again.
func (w *Worker) Failing() []post.Failing { return w.sender.Failing() }

// Waits lists what the worker is waiting for, in alphabetical order. It may name several channels.
func (w *Worker) Waits() []availability.Wait { return w.tracker.Waits() }

// Pending is how many events are in the stream that no replica has pulled yet. It asks NATS.
func (w *Worker) Pending(ctx context.Context) (uint64, error) { return w.feed.Pending(ctx) }

// Unpublished is how many dropped events could not be republished to Settings.DroppedSubject.
func (w *Worker) Unpublished() int64 {
	if w.republisher == nil {
		return 0
	}
	return w.republisher.unpublished.Load()
}

// RefusedChannels are the channels that refuse every message at the moment, each with Slack's error code.
func (w *Worker) RefusedChannels() map[string]string { return w.sender.RefusedChannels() }
