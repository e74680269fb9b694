package consume

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/term"
)

// What others ask of a running worker: is it alive, is it ready, what is it waiting for, what has it lost.

func (w *Worker) stamp() { w.progress.Store(time.Now().UnixNano()) }

// stalledAfter is how long the loop may show no sign of life. It shows one at least every few seconds, whatever it
// is waiting for.
const stalledAfter = 30 * time.Second

// Live is nil while the loop makes progress. It depends on no neighbour: waiting for one is progress.
func (w *Worker) Live() error {
	if silence := time.Since(time.Unix(0, w.progress.Load())); silence > stalledAfter {
		return fmt.Errorf("the loop has made no progress for %s", silence.Round(time.Second))
	}
	return nil
}

// Ready lists why this worker cannot do its job at the moment; empty: it can. A Slack that takes no posts is a wait and no
// reason, unless it refuses the credentials, nor is a dead-letter stream that refuses letters, unless the dead events fill the
// worker, so that it reads no more. It asks Redis, and answers within a second.
func (w *Worker) Ready(ctx context.Context) []string {
	var reasons []string
	for _, wait := range w.availability.waits(natsConnection, jetStreamConsumer, redisScripts, slackCredentials, laneRoom) {
		reasons = append(reasons, reasonLine(wait.For, wait.Reason))
	}
	for _, wait := range w.availability.waits(deadLetterStream) {
		if w.inflight.full() {
			reasons = append(reasons, reasonLine(wait.For, fmt.Sprintf("%s; no room is left beside %s", wait.Reason, term.Count(w.letterbox.size(), "dead event"))))
		}
	}
	if !w.running.Load() || (!w.source.bound() && len(reasons) == 0) {
		reasons = append(reasons, "worker: starting or stopping")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if reason := unreachable(ctx, w.settings.JetStream.Connection, w.settings.JetStream.Why); reason != "" && !w.availability.unavailable(natsConnection) {
		reasons = append(reasons, reasonLine(natsConnection.String(), reason))
	}
	if !w.availability.unavailable(redisScripts) {
		if err := w.limiter.Ready(ctx); err != nil {
			reasons = append(reasons, reasonLine(redisScripts.String(), err.Error()))
		}
	}
	return reasons
}

// reasonLine names what is unavailable once, also where the error does.
func reasonLine(what, reason string) string {
	return what + ": " + strings.TrimPrefix(reason, what+": ")
}

// unreachable returns why there is no connection; empty: there is one. It returns when ctx ends at the latest: while nats.go
// tries a server that does not answer, it does not answer either.
func unreachable(ctx context.Context, connection *nats.Conn, why func() error) string {
	answer := make(chan string, 1)
	go func() {
		if connection.IsConnected() {
			answer <- ""
		} else {
			answer <- unconnected(connection, why).Error()
		}
	}()
	select {
	case missing := <-answer:
		return missing
	case <-ctx.Done():
		return "connecting, and no server answers"
	}
}

// Holds is how many events are in flight: everything that has arrived and is not settled.
func (w *Worker) Holds() int { return w.inflight.size() }

// DeadEvents is how many dead events wait until their letters are stored.
func (w *Worker) DeadEvents() int { return w.letterbox.size() }

// held is how many events a line about a dependency shows: dead events for the dead-letter stream, else everything in flight.
func (w *Worker) held(d dependency) int {
	if d == deadLetterStream {
		return w.letterbox.size()
	}
	return w.inflight.size()
}

// Waits lists what the worker is waiting for, in alphabetical order. It may name several channels.
func (w *Worker) Waits() []Wait { return w.availability.waits() }

// Pending is how many events are in the stream that no replica has pulled yet. It asks NATS.
func (w *Worker) Pending(ctx context.Context) (uint64, error) { return w.source.pending(ctx) }

// Unpublished is how many dropped events could not be republished to Settings.DroppedSubject.
func (w *Worker) Unpublished() int64 {
	if w.republisher == nil {
		return 0
	}
	return w.republisher.unpublished.Load()
}

// RefusedChannels are the channels that refuse every message at the moment, each with Slack's error code.
func (w *Worker) RefusedChannels() map[string]string { return w.refused.list() }
